"""What has become of the mini batches of a parallel step, and when too many have failed.

The rules are those of Azure's guide "Use parallel jobs in pipelines": a mini batch has failed when ``run`` raises,
takes too long, or returns fewer items than it was given. Where ``error_threshold`` is -1 nobody counts items, and a
short answer is no failure: Microsoft's own example of many models returns an empty list for each of its mini batches
and allows five to fail.
"""

from __future__ import annotations

from allranks.local.parallel.plan import BatchRules


class BatchTally:
    """Counts mini batches and items.

    Attributes:
        total: number of mini batches.
        done: those of which nothing more will be heard, ``failed`` ones included.
        returned: items that ``run`` has returned, of ``failed_items`` it has not.
        retries: mini batches that were given out again; ``timeouts``: calls of ``run`` that were ended as too slow.
    """

    def __init__(self, rules: BatchRules, total: int) -> None:
        self._rules = rules
        self.total = total
        self.done = self.failed = self.returned = self.failed_items = self.retries = self.timeouts = 0

    def is_short(self, items: int, returned: int) -> bool:
        """Whether so few returned items make a mini batch one that has failed."""
        return self._rules.error_threshold >= 0 and returned < items

    def note(self, items: int, returned: int, *, failed: bool) -> None:
        """Note what has become of a mini batch for good."""
        self.done += 1
        self.failed += failed
        self.returned += returned
        if failed or self._rules.error_threshold >= 0:
            self.failed_items += max(0, items - returned)

    @property
    def fault(self) -> str:
        """Which limit is exceeded; empty while none is."""
        rules = self._rules
        if 0 <= rules.mini_batch_error_threshold < self.failed:
            failed = _have_failed(self.failed, "mini batch", "mini batches")
            return f"{failed}, and mini_batch_error_threshold is {rules.mini_batch_error_threshold}"
        if 0 <= rules.error_threshold < self.failed_items:
            failed = _have_failed(self.failed_items, "item", "items")
            return f"{failed}, and error_threshold is {rules.error_threshold}"
        if self.failed * 100 > rules.allowed_failed_percent * self.total:
            percent = f"allowed_failed_percent is {rules.allowed_failed_percent:g}"
            return f"{self.failed} of {self.total} mini batches have failed, and {percent}"
        return ""

    @property
    def final_fault(self) -> str:
        """Why nothing has come of it although no limit is exceeded; empty if something has."""
        if self.failed == self.total:
            return f"all {self.total} mini batches have failed"
        if self._rules.append_row_to and self.returned == 0:
            return "there is no succeeded mini batch item returned from run()"
        return ""

    @property
    def metrics(self) -> dict[str, int]:
        """Its counts, as a step logs them; of what rarely happens only if it has."""
        rare = {"retries": self.retries, "timeouts": self.timeouts}
        return {
            "mini_batches": self.done,
            "failed_mini_batches": self.failed,
            "items": self.returned,
            "failed_items": self.failed_items,
            **{name: count for name, count in rare.items() if count},
        }

    @property
    def slowness(self) -> str:
        """What to do about calls that were ended as too slow; empty if there was none."""
        if not self.timeouts:
            return ""
        times = "1 call" if self.timeouts == 1 else f"{self.timeouts} calls"
        return (
            f"{times} of run() took longer than retry_settings.timeout = {self._rules.run_timeout:g} s: raise it, or "
            "lower max_concurrency_per_instance where the workers wait for processors"
        )


def _have_failed(number: int, one: str, several: str) -> str:
    return f"1 {one} has failed" if number == 1 else f"{number} {several} have failed"
