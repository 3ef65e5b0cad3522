"""What a run calls while it trains: the interface, and the callbacks that every run has."""

from td3.callbacks.callback import Callback, CallbackList

__all__ = ["Callback", "CallbackList"]
