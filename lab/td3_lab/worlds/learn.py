"""TD3 with distributional critics on many worlds: `python -m td3_lab.worlds.learn --task HalfCheetah-v5 --out RUN`.

On a GPU a round is a few CUDA graphs: act, physics, store, and one for each update; physics runs beside the updates.
The host reads one packed tensor per log row and nothing else. Seconds count training alone: compiling and capturing
come before, and the policies saved at moments of the training are played afterwards by `play.py`.
"""

import argparse
import csv
import json
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, fields
from pathlib import Path

import torch
from torch import Tensor

from td3.errors import UserError
from td3_lab.worlds.captured import Captured
from td3_lab.worlds.learner import Learner
from td3_lab.worlds.policy import Policy
from td3_lab.worlds.replay import ReplayBuffer
from td3_lab.worlds.settings import Settings
from td3_lab.worlds.task import Step
from td3_lab.worlds.tasks import task_named
from td3_lab.worlds.worlds import Worlds

Row = dict[str, float | int]


class Training:
    """Worlds, replay buffer and learner, and the round that ties them together."""

    def __init__(self, settings: Settings, device: str) -> None:
        self.settings, self.device = settings, torch.device(device)
        is_cuda = self.device.type == "cuda"
        count = settings.worlds
        self.worlds = Worlds(task_named(settings.task), count, device, settings.seed, settings.solver_iterations)
        observations, actions = self.worlds.observation.shape[1], self.worlds.actions
        self.learner = Learner(settings, observations, actions, self.device)
        rounds = max(settings.buffer_size // count, settings.n_step + 1)
        self.buffer = ReplayBuffer(rounds, count, observations, actions, self.device)
        self.acting_noise = torch.Generator(self.device).manual_seed(settings.seed + 1)
        self.noise_scale = self._noise_scales()
        self.action = torch.zeros(count, actions, device=self.device)
        self.acted_on = torch.zeros_like(self.worlds.observation)
        self.rounds = torch.zeros((), dtype=torch.long, device=self.device)
        self.running_return, self.discounted, self.length = (torch.zeros(count, device=self.device) for _ in range(3))
        self.finished = torch.zeros(3, device=self.device)
        """Sums over finished episodes: return, length, number."""
        self.step: Step | None = None
        self.learn_stream = torch.cuda.Stream() if is_cuda else None  # type: ignore[no-untyped-call]
        world = (self.worlds.stream, (self.acting_noise, self.worlds.generator))
        learn = (self.learn_stream, (self.learner.generator,))
        self.parts = {
            "act": Captured(self.act, *world),
            "outcome": Captured(self.outcome, *world),
            "store": Captured(self.store, *world),
            "update": Captured(lambda: self.learner.update(self.buffer, move_actor=False), *learn),
            "update_both": Captured(lambda: self.learner.update(self.buffer, move_actor=True), *learn),
            "grow": Captured(self.learner.grow_support, *learn),
        }
        self.updates = self.round = 0
        self._prepare()

    def _noise_scales(self) -> Tensor:
        low, high = self.settings.noise_low, self.settings.noise_high
        draws = torch.rand((self.settings.worlds, 1), generator=self.acting_noise, device=self.device)
        return low + (high - low) * draws

    def _prepare(self) -> None:
        """Compile and record every part, then put back what that changed."""
        kept = [(tensor, tensor.detach().clone()) for tensor in self._tensors()]
        for part in self.parts.values():
            part.record()
        with torch.no_grad():
            for tensor, value in kept:
                tensor.copy_(value)
        self.learner.forget_moments()
        self.worlds.reset()
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _tensors(self) -> list[Tensor]:
        buffer, worlds = self.buffer, self.worlds
        return [
            *self.learner.tensors(),
            *(buffer.table, buffer.head, buffer.filled),
            *(worlds.clock, worlds.blown_up, worlds.overflowed),
            *(self.noise_scale, self.rounds, self.running_return, self.discounted, self.length, self.finished),
        ]

    @torch.no_grad()
    def act(self) -> None:
        """Choose the actions of the round, random ones in the first rounds, and hand them to the simulator."""
        self.acted_on.copy_(self.worlds.observation)
        noise = torch.randn(self.action.shape, generator=self.acting_noise, device=self.device)
        action = self.learner.act(self.acted_on) + self.noise_scale * noise
        random = torch.rand(self.action.shape, generator=self.acting_noise, device=self.device) * 2 - 1
        self.action.copy_(torch.where(self.rounds < self.settings.random_rounds, random, action.clamp(-1, 1)))
        self.worlds.begin(self.action)
        self.rounds.add_(1)

    @torch.no_grad()
    def outcome(self) -> None:
        """Take from the simulator what the round gave."""
        self.step = self.worlds.outcome()

    @torch.no_grad()
    def store(self) -> None:
        """Store the transitions, count returns, and draw new noise scales for new episodes."""
        assert self.step is not None
        step, ended = self.step, self.step.ended
        self.worlds.restarted(step)
        self.buffer.add(self.acted_on, self.action, step)
        self.learner.normalizer.observe(self.acted_on)
        self.running_return.add_(step.reward)
        self.discounted.mul_(self.settings.gamma).add_(step.reward)
        self.length.add_(1)
        self.learner.support.observe(self.discounted)
        sums = torch.stack([self.running_return, self.length, torch.ones_like(self.length)])
        self.finished.add_((sums * ended).sum(1))
        for counter in (self.running_return, self.discounted, self.length):
            counter.mul_(~ended)
        self.noise_scale.copy_(torch.where(ended[:, None], self._noise_scales(), self.noise_scale))

    def play_round(self) -> None:
        """Do one env step of every world and the round's updates, physics and updates side by side."""
        worlds, learn = self.worlds.stream, self.learn_stream
        learning = self.round > self.settings.random_rounds
        self.parts["act"]()
        if learn is not None and worlds is not None:
            learn.wait_stream(worlds)  # the last round is stored, and acting has read the actor
        with torch.cuda.stream(worlds) if worlds is not None else nullcontext():
            self.worlds.physics()
        if learning:
            self._update()
        self.parts["outcome"]()
        with torch.cuda.stream(worlds) if worlds is not None else nullcontext():
            self.worlds.refresh()
        if learn is not None and worlds is not None:
            worlds.wait_stream(learn)  # the updates have read the buffer and the normalizer
        self.parts["store"]()
        self.round += 1

    def _update(self) -> None:
        if self.updates == 0 and self.settings.automatic_support and self.settings.support_reach > 0:
            with torch.no_grad(), torch.cuda.stream(self.learn_stream) if self.learn_stream else nullcontext():
                self.learner.support.begin(self.buffer.rewards(self.round))
        for _ in range(self.settings.updates):
            self.updates += 1
            self.parts["update_both" if self.updates % self.settings.policy_delay == 0 else "update"]()
        if self.settings.automatic_support and self.round % self.settings.support_every == 0:
            self.parts["grow"]()

    def read(self) -> Row:
        """Return the figures of a log row: the only read from the device, of one packed tensor."""
        support, worlds = self.learner.support.atoms, self.worlds
        counts = torch.stack([worlds.blown_up, worlds.overflowed]).float()
        packed = torch.cat([self.finished, counts, support[[0, -1]], self.learner.losses]).tolist()
        self.finished.zero_()
        total, length, number, blown_up, overflowed, low, high, critic_loss, q_value = packed
        episodes = max(number, 1)
        return {
            "episodes": int(number),
            "exploring_return": round(total / episodes, 1),
            "length": round(length / episodes, 1),
            "low": round(low, 1),
            "high": round(high, 1),
            "critic_loss": round(critic_loss, 4),
            "q_value": round(q_value, 1),
            "blown_up": int(blown_up),
            "overflowed": int(overflowed),
        }


def train(settings: Settings, out: Path, device: str) -> Row:
    """Train for the settings' seconds, write log, policies and their moments to `out`, and return the last row."""
    out.mkdir(parents=True, exist_ok=True)
    begun = time.perf_counter()
    training = Training(settings, device)
    compile_seconds = round(time.perf_counter() - begun, 1)
    about = {**asdict(settings), "compile_seconds": compile_seconds, "device": device}
    (out / "settings.json").write_text(json.dumps(about, indent=1))
    policies: list[tuple[Row, list[Tensor]]] = []
    rows: list[Row] = []
    pending: deque[torch.cuda.Event] = deque()
    start, logged = time.perf_counter(), 0
    while True:
        training.play_round()
        if device != "cpu":  # the host stays at most four rounds ahead, so that its clock is the device's
            pending.append(torch.cuda.Event())  # type: ignore[no-untyped-call]
            pending[-1].record(training.worlds.stream)
            if len(pending) > 4:
                pending.popleft().synchronize()
        seconds = time.perf_counter() - start
        moment = {
            "seconds": round(seconds, 2),
            "env_steps": training.round * settings.worlds,
            "updates": training.updates,
        }
        if seconds >= (len(policies) + 1) * settings.save_every:
            policies.append((moment, [tensor.detach().clone() for tensor in training.learner.policy_tensors()]))
        over = seconds >= settings.seconds or training.round >= settings.max_rounds
        if over or seconds >= (logged + 1) * settings.log_every:
            logged += 1
            rows.append({**moment, **training.read()})
        if over:
            break
    if not policies or policies[-1][0]["updates"] < training.updates:
        policies.append((moment, training.learner.policy_tensors()))
    write(out, rows, policies, training.learner.policy)
    return {**rows[-1], "compile_seconds": compile_seconds}


def write(
    out: Path,
    rows: list[Row],
    policies: list[tuple[Row, list[Tensor]]],
    policy: Callable[[list[Tensor]], Policy],
) -> None:
    """Write the log and the policies."""
    with (out / "log.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    lines = []
    for index, (moment, tensors) in enumerate(policies):
        name = f"policy_{index:02}.npz"
        policy(tensors).save(out / name)
        lines.append(json.dumps({**moment, "policy": name}))
    (out / "moments.jsonl").write_text("\n".join(lines) + "\n")


def main() -> None:
    """Train with the given settings and print the last row of the log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for field in fields(Settings):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=str if field.type is str else json.loads)
    given = vars(parser.parse_args())
    out, device = given.pop("out"), given.pop("device")
    settings = Settings(**{name: value for name, value in given.items() if value is not None})
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UserError("--device cuda needs a GPU, and PyTorch sees none here; --device cpu runs a few worlds.")
    torch.set_float32_matmul_precision("high")
    print(json.dumps({"run": out.name, **train(settings, out, device)}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        raise SystemExit(f"error: {error}") from None
