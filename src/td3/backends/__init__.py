"""How a layer, Adam, a gather and a sum are computed: by PyTorch (the reference), in C on a CPU, in Triton on a GPU.

An agent's backend is chosen once, when the agent is made (`choose.py`); nothing else asks which kernel serves.
"""
