"""Names that other libraries have for our settings, and the name that somebody who mistyped one may have meant."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from td3.errors import ConfigError

SPELLINGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("n", "total_timesteps", "n_timesteps", "max_timesteps"), ("steps",)),
    **dict.fromkeys(("num_envs", "n_envs"), ("envs",)),
    "eval_freq": ("eval_every",),
    "from": ("init_from",),
    **dict.fromkeys(("start_timesteps", "random_steps"), ("learning_starts",)),
    "expl_noise": ("exploration_noise",),
    "policy_noise": ("target_policy_noise",),
    "noise_clip": ("target_noise_clip",),
    **dict.fromkeys(("policy_freq", "policy_frequency"), ("policy_delay",)),
    "discount": ("gamma",),
    "net_arch": ("hidden_sizes",),
    **dict.fromkeys(("lr", "learning_rate"), ("actor_learning_rate", "critic_learning_rate")),
}
"""Names of the author's code, CleanRL, Stable-Baselines3 and RL Zoo, and our fields with the same meaning."""
SIMILAR = 0.65
"""Names that have less in common, of 1, are not suggested: `--lr` is not `--help`."""


def nearest(typed: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant, by what it says: prefixes such as --td3. do not count."""
    known = {_core(name): name for name in reversed([*names])}
    close = difflib.get_close_matches(_core(typed), known, 1, SIMILAR)
    return known[close[0]] if close else None


def _core(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--").removeprefix("td3.").replace("-", "")


def own_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by our names; a setting that was given twice is refused."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        for own in SPELLINGS.get(name, (name,)):
            if own in found or (own != name and own in given):
                raise ConfigError(f"is given twice, once as {name!r}: leave one out.", own)
            found[own] = value
    return found
