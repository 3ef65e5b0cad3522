"""A run from its settings to its last env step: `train`, `resume`, and the loop between them."""

from td3.training.api import resume, resume_run, train, train_run
from td3.training.backend_flags import backend_flags
from td3.training.offline import train_offline
from td3.training.setup import choose_device
from td3.training.trainer import Trainer

__all__ = [
    "Trainer",
    "backend_flags",
    "choose_device",
    "resume",
    "resume_run",
    "train",
    "train_offline",
    "train_run",
]
