"""Which checkpoint a run continues from, with which settings, and what has changed since."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from td3.config import TrainConfig
from td3.errors import ConfigError, RunError
from td3.presets import preset_fields
from td3.run.checkpoints import Checkpoint, Checkpoints, check_facts
from td3.run.directory import read_facts, versions
from td3.run.tables import MemberWriter, check_position
from td3.training.setup import buffer_capacity


def newest_usable(path: Path, config: TrainConfig) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that is whole and belongs to the run, and a sentence on each newer one."""
    checkpoints = Checkpoints(path)
    checkpoint, refused = checkpoints.newest()
    while checkpoint is not None:
        try:
            require_same_run(config, TrainConfig.from_json(checkpoint.facts["config"]))
            check_rows(config, checkpoint)
            break
        except (ValueError, KeyError, TypeError, ConfigError) as error:
            refused.append(f"checkpoint {checkpoint.env_steps:,} cannot be used ({error})")
            checkpoint, more = checkpoints.before(checkpoint)
            refused += more
    return checkpoint, refused


def require_unfinished(path: Path, config: TrainConfig, checkpoint: Checkpoint | None, refused: list[str]) -> None:
    """Refuse a run that has done all its env steps, and one that would lose what it learned by beginning again."""
    if (
        checkpoint is not None
        and checkpoint.env_steps >= config.steps
        and read_facts(path / "status.json").get("status") == "finished"
    ):
        raise RunError(
            f"{path} has done its {config.steps:,} {config.unit}: to go on, give a larger number,  "
            f"td3 resume {path} --steps {2 * config.steps}"
        )
    if checkpoint is None and (lost := progress(path, config)):
        why = refused[0] if refused else "it has no checkpoint"
        raise RunError(
            f"{path} cannot be resumed: {why}, and to begin again would overwrite what it learned in {lost:,} "
            f"{config.unit}. To train it anew:  td3 train --config {path / 'config.json'} --out ANOTHER"
        )


def progress(path: Path, config: TrainConfig) -> int:
    """How far a run has come, by its status and its saved agents."""
    found = [path / "status.json", *(path / f"seed_{seed}" / "best" / "agent.json" for seed in config.member_seeds)]
    steps = [read_facts(file).get("env_steps") for file in found]
    return max((count for count in steps if isinstance(count, int)), default=0)


def config_to_resume(path: Path, config: TrainConfig, steps: int | None) -> TrainConfig:
    """The settings of a run that is resumed, perhaps with more env steps."""
    config = replace(config, out=path)
    if steps is None or steps == config.steps:
        return config
    if steps < config.steps:
        raise RunError(f"{path} is a run of {config.steps:,} {config.unit}: --steps {steps} is fewer.")
    before, after = (preset_fields(config.preset, config.env, length) for length in (config.steps, steps))
    if config.td3.buffer_size == before.get("buffer_size"):  # preset paper keeps the whole history, however long
        config = replace(config, td3=replace(config.td3, buffer_size=after["buffer_size"]))
    return replace(config, steps=steps)


def with_capacity_of(config: TrainConfig, checkpoint: Checkpoint | None) -> TrainConfig:
    """The settings, with the replay buffer of the checkpoint if that has wrapped around: then it cannot grow."""
    if checkpoint is None:
        return config
    capacity = buffer_capacity(TrainConfig.from_json(checkpoint.facts["config"]))
    if checkpoint.facts["added"] <= capacity or buffer_capacity(config) == capacity:
        return config
    return replace(config, td3=replace(config.td3, buffer_size=capacity))


def require_same_run(config: TrainConfig, saved: TrainConfig) -> None:
    """Raise ValueError if a checkpoint was written with other settings than config.json has; a run may grow longer."""
    same_size = config.preset == "paper" or config.td3.buffer_size == buffer_capacity(saved)
    grown = replace(saved.td3, buffer_size=config.td3.buffer_size) if same_size else saved.td3
    # A change of replaced steps is said, and recorded in steps.json.
    saved = replace(saved, out=config.out, steps=config.steps, replace_steps=config.replace_steps, td3=grown)
    differing = [f.name for f in fields(saved) if getattr(saved, f.name) != getattr(config, f.name)]
    if differing:
        raise ValueError(f"it was written with another {', '.join(differing)} than config.json has")


def check_rows(config: TrainConfig, checkpoint: Checkpoint) -> None:
    """Raise ValueError if rows of the run's tables, or of the buffer, are no longer what the checkpoint knows."""
    assert config.out is not None
    check_facts(checkpoint, config, MemberWriter.FILES)
    for seed in config.member_seeds:
        check_position(config.out / f"seed_{seed}", checkpoint.facts["positions"][str(seed)])
    for _ in checkpoint.rows():
        pass


def changed_versions(before: Mapping[str, str]) -> list[str]:
    """A sentence if a package that results depend on has another version than when the checkpoint was written."""
    now, before = versions(), {"kernels": "PyTorch", **before}  # there were no others once
    known = [name for name in now if name in before]  # another package that came since changes nothing
    changed = [f"{name} {before[name]} is now {now[name]}" for name in known if before[name] != now[name]]
    return [f"{'; '.join(changed)}: the run goes on, but not as it would have."] if changed else []
