"""Updates as CUDA graphs: all members in one batch, recorded once, replayed without Python between the kernels.

What is recorded is `update()` itself. Two graphs are enough: one for the updates in which the actor waits, one for
those in which it moves. Every number that changes between updates (the batch's rows, the noise, the fill of the
memory) is read from device memory, so that nothing is frozen into a graph but shapes.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from td3.algorithm import Agent, MemberStreams, ReplayMemory, update
from td3.algorithm.streams import BLOCK
from td3.algorithm.update import Settings
from td3.engine.losses import LossSums
from td3.policy import Array

TOLERANCE, TOLERANCE_TF32 = 1e-5, 1e-3
"""Largest disagreement with plain execution that a run accepts: the same kernels in the same order."""
WARM_UP = 3
"""Updates run outside a graph first, as PyTorch's capture asks for: libraries allocate on first use."""


class GraphStreams:
    """The numbers of `MemberStreams`, in buffers that stay where they are, read at a cursor that a graph can move."""

    def __init__(self, seeds: Sequence[int], batch_size: int, action_size: int, device: torch.device) -> None:
        self._source = MemberStreams(seeds, device)
        shape = (BLOCK, len(seeds), batch_size)
        self._sampling = torch.empty(shape, dtype=torch.int64, device=device)
        self._smoothing = torch.empty(*shape, action_size, device=device)
        self.cursor = torch.zeros(1, dtype=torch.int64, device=device)

    def prepare(self, update_number: int) -> None:
        """Have the numbers of this update ready; a block is drawn when its first update comes."""
        block, slot = divmod(update_number, BLOCK)
        if slot == 0:
            self.draw(block)

    def draw(self, block: int, slot: int = 0) -> None:
        """Draw one block and stand before one of its updates."""
        self._source.draw_block_("sampling", block, self._sampling)
        self._source.draw_block_("smoothing", block, self._smoothing)
        self.cursor.fill_(slot)

    def rows(self, filled: Int[Tensor, ""], count: int) -> Int[Tensor, "member {count}"]:
        """Row numbers, uniform in [0, filled), with replacement."""
        return self._sampling.index_select(0, self.cursor)[0].remainder_(filled)

    def normal(self, count: int, size: int) -> Float[Tensor, "member {count} {size}"]:
        """Standard normal numbers."""
        return self._smoothing.index_select(0, self.cursor)[0]


class CudaEngine:
    """Runs the same number of updates of every member, and their actions, as graphs on one GPU."""

    def __init__(
        self, agent: Agent, memory: ReplayMemory, seeds: Sequence[int], settings: Settings, envs_per_member: int
    ) -> None:
        self.agent, self.memory, self.settings = agent, memory, settings
        self.device = agent.actor.parameters.device
        self.losses = LossSums(len(seeds), self.device)
        self._streams = GraphStreams(seeds, settings.batch_size, agent.actor.action_range.low.shape[0], self.device)
        self._pool = torch.cuda.graph_pool_handle()
        self._updates = self._record_updates()
        self._record_act(envs_per_member)
        self._staged = torch.empty(len(seeds), envs_per_member, memory.rows.shape[2], pin_memory=True)

    def update(self, counts: Sequence[int]) -> None:
        """Run so many updates; all members' counts are the same."""
        for _ in range(counts[0]):
            done = int(self.agent.updates[0])
            self._streams.prepare(done)
            self._updates[(done + 1) % self.settings.policy_delay == 0].replay()
            self.agent.updates += 1

    def act(self, states: Array) -> Array:
        """The actors' actions; waits for the GPU to have done all that was asked of it before."""
        self._states_host.numpy()[:] = states
        self._act.replay()
        self._acted.record()
        self._acted.synchronize()
        return self._actions_host.numpy()

    def store(self, rows: Array) -> None:
        """Send new rows to the memory; the update that was begun before does not see them."""
        # The previous copy out of this buffer is over: `act` or the copy itself has waited for it since.
        self._stored.synchronize()
        self._staged.numpy()[:] = rows
        self.memory.add_(self._staged.to(self.device, non_blocking=True))
        self._stored.record()

    def mean_losses(self, updates: Sequence[int]) -> list[dict[str, float]]:
        """Each member's means over all updates since the previous call."""
        return self.losses.take(updates)

    def close(self) -> None:
        """Wait for the GPU."""
        torch.cuda.synchronize(self.device)

    def _one_update(self) -> None:
        self.losses.add_(update(self.agent, self.memory, self._streams, self.settings))
        self._streams.cursor.add_(1)

    def _record_updates(self) -> dict[bool, torch.cuda.CUDAGraph]:
        """Record an update of each kind; afterwards everything stands as if nothing had run."""
        agent, delay = self.agent, self.settings.policy_delay
        saved = {name: tensor.clone() for name, tensor in agent.tensors().items()}
        counts, filled = agent.updates.copy(), self.memory.filled.clone()
        self.memory.filled.clamp_(min=1)
        self._streams.draw(0)
        kinds = {True: delay - 1} if delay == 1 else {False: 0, True: delay - 1}
        graphs = {}
        side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        # Without this wait the first kernels of the side stream would read what is not written yet.
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for moves_actor, before in kinds.items():
                for _ in range(WARM_UP):
                    agent.updates[:] = before
                    self._one_update()
                agent.updates[:] = before
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=self._pool, stream=side):
                    self._one_update()
                graphs[moves_actor] = graph
        torch.cuda.current_stream(self.device).wait_stream(side)
        for name, tensor in agent.tensors().items():
            tensor.copy_(saved[name])
        agent.updates[:] = counts
        self.memory.filled.copy_(filled)
        self.losses.sums.zero_()
        block, slot = divmod(int(counts[0]), BLOCK)
        self._streams.draw(block, slot)
        return graphs

    def _record_act(self, envs_per_member: int) -> None:
        actor = self.agent.actor
        shape = (self.agent.members, envs_per_member)
        state_size, action_size = actor.network.sizes[0], actor.network.sizes[-1]
        self._states_host = torch.zeros(*shape, state_size, pin_memory=True)
        self._actions_host = torch.zeros(*shape, action_size, pin_memory=True)
        self._acted, self._stored = torch.cuda.Event(), torch.cuda.Event()  # type: ignore[no-untyped-call]  # as above
        self._act = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.no_grad(), torch.cuda.stream(side):
            network = type(actor)(
                type(actor.network)(actor.network.sizes, actor.parameters.detach()), actor.action_range
            )
            for _ in range(WARM_UP):
                network(self._states_host.to(self.device, non_blocking=True))
            with torch.cuda.graph(self._act, pool=self._pool, stream=side):
                actions = network(self._states_host.to(self.device, non_blocking=True))
                self._actions_host.copy_(actions, non_blocking=True)
        torch.cuda.current_stream(self.device).wait_stream(side)


def disagreement(agent: Agent, seeds: Sequence[int], sizes: tuple[int, int], settings: Settings) -> float:
    """How far a few updates by graphs and by plain execution drift apart, relative to the size of the weights.

    Both start from copies of the same learners, the same made-up transitions and the same random numbers.
    """
    device = agent.actor.parameters.device
    results = []
    for by_graph in (True, False):
        learner = agent.copied(device)
        memory = ReplayMemory(len(seeds), 512, *sizes, device)
        rows = torch.randn(memory.rows.shape, generator=torch.Generator().manual_seed(0))
        rows[..., -1] = (rows[..., -1] > 1).float()
        memory.add_(rows.to(device))
        updates = 2 * settings.policy_delay + 1
        if by_graph:
            CudaEngine(learner, memory, seeds, settings, 1).update([updates] * len(seeds))
        else:
            streams = MemberStreams(seeds, device)
            for _ in range(updates):
                update(learner, memory, streams, settings)
        results.append({name: tensor.double() for name, tensor in learner.tensors().items()})
    graph, plain = results
    return max(
        float((graph[name] - plain[name]).norm() / plain[name].norm().clamp(min=1e-12))
        for name in ("actor", "actor_target", "critics", "critics_target")
    )
