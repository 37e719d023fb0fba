"""A network's forward and backward pass as compiled code, for training steps on a CPU in float32.

PyTorch's own kernels are made for large networks; on those of this package most of a step goes into calling them and
into moving numbers between them. Here a whole pass is one call of code that is compiled on first use (`build`,
network.cpp), for models that are asked to (`fedlib.models.Model.step`); losses are PyTorch's, whatever they are,
because autograd sees the whole pass as one operation (`network`).
"""

from fedlib.models.fused.network import FusedNetwork, calls

__all__ = ["FusedNetwork", "calls"]
