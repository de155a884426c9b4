"""What is quoted of a log that ends with torchrun's report."""

from __future__ import annotations

from allranks.local.launch.torchrun import words_of_ranks

REPORT = """Traceback (most recent call last):
  File "/venv/bin/torchrun", line 6, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
train.py FAILED
Root Cause (first observed failure):""".splitlines()
OF_TORCHRUN = "E1124 12:40:15.337000 11927 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 2)"


def test_what_the_ranks_said_comes_without_the_report() -> None:
    trace = ["Traceback (most recent call last):", '  File "train.py", line 3', "ValueError: no"]
    log = ["epoch 1", *trace, OF_TORCHRUN, "error: no", "error: no", *REPORT]
    assert words_of_ranks(log, 20) == ("epoch 1", *trace, "error: no")
    assert words_of_ranks(log, 2) == ("ValueError: no", "error: no")


def test_a_log_of_another_launcher_or_of_torchrun_alone_is_quoted_as_it_is() -> None:
    assert words_of_ranks(["one", "two", "two"], 2) == ("two", "two")
    assert words_of_ranks([OF_TORCHRUN, *REPORT], 3) == tuple(REPORT[-3:])
