"""Policies in numpy that act as an agent does."""

import torch

from td3.algorithm.agent import Agent
from td3.algorithm.normalizer import Normalizer
from td3.algorithm.step_02_actor import Actor
from td3.pixels.layout import Layout, NumpyEncoder
from td3.policy import Policy


def live_policy(agent: Agent) -> Policy:
    """A policy that shares the weights of actors on the CPU: it always acts as they would now."""
    return _policy(agent, agent.actor, agent.normalizer)


def acting_policy(agent: Agent) -> Policy:
    """The policy of the actors as they are now, wherever they live; only the actors are copied from a GPU."""
    normalizer = agent.normalizer and agent.normalizer.copied("cpu")
    return _policy(agent, agent.actor.over(agent.actor.parameters.detach().cpu()), normalizer)


def _policy(agent: Agent, actor: Actor, normalizer: Normalizer | None) -> Policy:
    layers = [(weight.detach().numpy(), bias.detach().numpy()) for weight, bias in actor.network.layers()]
    low, high = actor.action_range.low.tolist(), actor.action_range.high.tolist()
    statistics = None if normalizer is None else (normalizer.mean.numpy(), normalizer.scale.numpy())
    shapes, activation = ((agent.task.state_size,), (len(low),)), actor.network.activation
    return Policy(layers, low, high, *shapes, statistics, numpy_encoder(agent), activation)


def numpy_encoder(agent: Agent) -> NumpyEncoder | None:
    """The encoders in numpy, sharing their weights, where states are images."""
    if agent.encoder is None:
        return None
    plan, parameters = agent.encoder.plan, agent.encoder.parameters.detach()
    parts = zip(torch.split(parameters, plan.sizes, -1), plan.shapes, strict=True)
    arrays = [part.view(len(part), *shape).numpy() for part, shape in parts]
    return NumpyEncoder(Layout(*plan[:5]), plan.strides, arrays)
