"""Updates and actions of a run: who is updated how often, and by which threads. How, is in updates.py and exchange.py.

On a CPU each member has updates of its own, in a thread of its own where there are several: members may stand at
different counts. On a GPU all members are updated in one batch; where some are owed more updates than others, the
others are masked.
"""

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import torch
from torch import Tensor

from td3.algorithm.agent import Agent
from td3.algorithm.optimizer import NonFinite
from td3.algorithm.step_01_replay_buffer import ReplayBuffer
from td3.algorithm.update import moves_actor
from td3.backends.thread_tuner import ThreadTuner
from td3.engine.check import EVERY, FIRST, TOLERANCE
from td3.engine.exchange import HostExchange, StagedExchange
from td3.engine.losses import LossSums
from td3.engine.updates import Execution, Updates
from td3.policy import Array
from td3.settings import TD3Config

NAMES = {"eager": "eager updates", "recorded": "recorded updates", "graph": "CUDA graphs"}
"""How updates are executed, in a word or two."""


class Engine:
    """Executes updates, chooses actions and stores transitions.

    A member is frozen when a loss or a gradient was not finite, or when a run gives it up. `on_warning` is told what a
    run survives; a run sets its own. `notices` are warnings from before the first update.
    """

    on_warning: Callable[[str], None] = staticmethod(lambda text: warnings.warn(text, stacklevel=2))

    def __init__(
        self,
        agent: Agent,
        buffer: ReplayBuffer,
        seeds: Sequence[int],
        settings: TD3Config,
        execution: Execution = "recorded",
        threads: int = 1,
        envs: int = 1,
        tolerance: float = TOLERANCE,
    ) -> None:
        self.agent, self.buffer, self.settings, self.device = agent, buffer, settings, agent.device
        buffer.backend = agent.backend
        self.frozen: dict[int, str] = {}
        buffer.frozen = self.frozen
        self.notices: list[str] = []
        self.losses = LossSums(len(seeds), self.device, agent.backend)
        self.asynchronous = execution == "graph"
        """Whether `update` returns at once and the updates run beside this thread, as a GPU's do."""
        together = execution == "graph" or self.device.type != "cpu"
        exchange = StagedExchange(agent, buffer, envs) if self.asynchronous else HostExchange(agent, buffer)
        self._exchange = exchange
        self.act_async, self.act_wait, self.store = exchange.act_async, exchange.act_wait, exchange.store
        """Choose actions for states, get them, and put rows into the replay buffer (exchange.py)."""
        self._pool: ThreadPoolExecutor | None = None
        self._tuner: ThreadTuner | None = None
        self._threads_before = torch.get_num_threads(), agent.backend.get_threads()
        if not together:
            self._choose_threads(threads, len(seeds))
        parts = [(agent, buffer, [*seeds], self.losses)]
        if not together:
            parts = [(agent.member(i), buffer.member(i), [s], self.losses.member(i)) for i, s in enumerate(seeds)]
        self._updates = [
            Updates(*own, settings, execution, tolerance if together else 0.0, self._tuner) for own in parts
        ]
        self._together = together
        self._differing: list[tuple[int, float]] = []
        self.seek()

    def _choose_threads(self, threads: int, members: int) -> None:
        """One thread of arithmetic for each member beats sharing all threads on one member after another."""
        backend = self.agent.backend
        if (workers := min(threads, members)) > 1:
            self._pool = ThreadPoolExecutor(workers, initializer=backend.set_threads, initargs=(1,))
        if self.agent.encoder is not None:
            # The gradient of a convolution is another one, in its last digits, on another number of threads.
            threads = 1
        if self._pool is None:
            self._tuner = ThreadTuner(threads, backend.set_threads)
        elif threads == 1:
            backend.set_threads(1)

    def update(self, counts: Sequence[int]) -> None:
        """Run so many updates of each member that is not frozen.

        A member whose numbers break down is frozen; `NonFinite` is raised when no other member is left. A GPU freezes
        it on the device, where `check` finds it.
        """
        if not any(counts):
            return
        if self._exchange.waiting:
            self._exchange.flush()
        if self._together:
            self._update_together({member: counts[member] for member in self.active})
        elif self._pool is None:
            for member, count in enumerate(counts):
                self._update_member(member, count)
        else:
            running = [self._pool.submit(self._update_member, member, count) for member, count in enumerate(counts)]
            try:
                wait(running)
            finally:
                wait(running)  # after an interrupt too: the agent that is saved next must consist of whole updates
            for one in running:
                one.result()
        if self._differing:
            self._execute_eagerly()
        if self.frozen and not self._together:
            self.require_active()

    def _update_member(self, member: int, count: int) -> None:
        if member in self.frozen:
            return
        update = self._updates[member]
        try:
            for _ in range(count):
                if (apart := update()) is not None:
                    update.execute_eagerly()
                    self._differing.append((int(self.agent.updates[member]), apart))
        except NonFinite as error:
            self.freeze(member, str(error))

    def _update_together(self, owed: dict[int, int]) -> None:
        """All at once where they stand at the same count and are owed alike; else those whose updates are of a kind."""
        updates, counts = self._updates[0], self.agent.updates
        alike = len({*counts[list(owed)].tolist()}) == 1 and len({*owed.values()}) == 1
        masked = not alike or (len(owed) < self.agent.members and self.device.type == "cpu")
        while owed := {member: count for member, count in owed.items() if count}:
            kinds: dict[bool, list[int]] = {}
            for member in owed:
                kinds.setdefault(moves_actor(int(counts[member]), self.settings), []).append(member)
            for due in kinds.values():
                if (apart := updates(due, masked)) is not None:
                    self._differing.append((int(counts.max()), apart))
            owed = {member: count - 1 for member, count in owed.items()}

    @property
    def active(self) -> list[int]:
        """Members that are not frozen."""
        return [member for member in range(self.agent.members) if member not in self.frozen]

    def _execute_eagerly(self) -> None:
        """Replay nothing from now on: what was recorded has turned out to differ from eager execution."""
        updates, apart = max(self._differing)
        for each in self._updates:
            each.execute_eagerly()
        self._differing.clear()
        self.on_warning(
            f"at update {updates:,}, updates by {'CUDA graphs' if self._together else 'recordings'} differ from eager "
            f"execution by {apart:.1e}: a step depends on something that is not recorded, such as the number of "
            "updates. The run continues with eager execution; updates since the last comparison may not have been "
            "executed as written."
        )

    @property
    def kind(self) -> str:
        """How updates are executed, in a word or two."""
        return NAMES[self._updates[0].execution]

    @property
    def description(self) -> str:
        """How updates are executed, in one sentence."""
        if self._updates[0].execution == "eager":
            return "Updates are executed eagerly."
        how = "recorded as CUDA graphs" if self.asynchronous else "recorded, replayed,"
        return (
            f"Updates are {how} and compared with eager execution now, after {FIRST:,} and every {EVERY:,} updates; "
            "--engine eager turns that off."
        )

    def set_learning_rates(self, actor: float, critic: float) -> None:
        """Learn at these rates from the next update on."""
        self.agent.actor_optimizer.learning_rate = actor
        self.agent.critics_optimizer.learning_rate = critic

    def freeze(self, member: int, reason: str) -> None:
        """Never update this member again."""
        self.frozen.setdefault(member, reason)
        self.agent.active[member] = 0
        if self._together:
            self.seek()  # a comparison with eager execution that has begun knows nothing of it

    def check(self) -> None:
        """Find the members that an update on a GPU has frozen; raise `NonFinite` if no other member is left.

        On a CPU they are known already: there a member is frozen in the update that fails.
        """
        for member, active in enumerate(self.agent.active.tolist()):
            if not active and member not in self.frozen:
                self.freeze(member, "a gradient is too large or not a number")
                steps = self.agent.critics_optimizer.state().get("steps")
                if steps is not None:  # the updates begun since then did nothing
                    self.agent.updates[member] = int(steps[0, member])
        self.require_active()

    def require_active(self) -> None:
        """Raise `NonFinite` if all members are frozen."""
        if len(self.frozen) == self.agent.members:
            raise NonFinite(list(self.frozen.values())[-1])

    def mean_losses(self, updates: Sequence[int]) -> list[dict[str, float]]:
        """Each member's means over all updates since the previous call."""
        self.check()
        return self.losses.take(updates)

    def act(self, states: Array | Tensor) -> Array | Tensor:
        """The actors' actions `[member, count, action]` for states `[member, count, state]`; tensors for tensors."""
        self.act_async(states)
        return self.act_wait()

    def flush(self) -> None:
        """Have every stored row really in the buffer."""
        self._exchange.flush()

    def prepare(self) -> None:
        """Do what can be done ahead, while the environments step."""
        if self.asynchronous:
            self._updates[0].prepare()

    def seek(self) -> None:
        """The agent and the buffer were set to another moment: go on from there."""
        for updates in self._updates:
            updates.seek()

    def use_threads(self) -> None:
        """Have as many threads as this engine works with: others may have been set since its last update."""
        if self._tuner is not None:
            self.agent.backend.set_threads(self._tuner.threads)

    def close(self) -> None:
        """End the threads, leave PyTorch's as they were, and wait for a GPU: it reads memory of the host."""
        self.flush()
        if self._pool is not None:
            self._pool.shutdown()
        of_pytorch, ours = self._threads_before
        self.agent.backend.set_threads(ours)
        torch.set_num_threads(of_pytorch)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
