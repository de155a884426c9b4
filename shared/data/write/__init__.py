"""Writing a prepared dataset, whatever its rows come from."""

from shared.data.write.writer import (
    remove_leftovers,
    write_index,
    write_ragged_shard,
    write_shard,
    write_skipped,
    write_tokenizer,
)

__all__ = ["remove_leftovers", "write_index", "write_ragged_shard", "write_shard", "write_skipped", "write_tokenizer"]
