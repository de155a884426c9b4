"""What train_transformers needs besides `shared.training`: model folders, and our loop's habits in Hugging Face's."""

from transformers.utils import logging

logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # the run reports what there is to say
