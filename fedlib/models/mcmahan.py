"""The convolutional network of FedAvg's paper, used by PFedCS ("4-layer CNN") and pFedSV ("CNN").

B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas. "Communication-Efficient Learning of Deep Networks from
Decentralized Data." AISTATS 2017, arXiv:1602.05629, section 3.
"""

from __future__ import annotations

from torch import nn

from fedlib.base.errors import choose, require
from fedlib.models.lenet import convolutions
from fedlib.models.parts import ExtractorHead, num_features


def mcmahan_cnn(
    shape: tuple[int, int, int], num_classes: int, padding: str = "valid", width: float = 1.0
) -> ExtractorHead:
    """Two 5x5 convolutions (32 and 64 channels), each with ReLU and max-pooling, fully connected 512, classes.

    padding: "valid" (none, as in the code whose settings PFedCS shares) or "same" (as the original, which publishes
    1,663,370 parameters for 1x28x28 inputs and 10 classes; "valid" has 582,026). width: this share of the original's
    channels and units, rounded (0.25: 8, 16 and 128). No batch norm.
    """
    border = {"valid": 0, "same": 2}[choose("padding", padding, ("valid", "same"))]
    require(0 < width <= 4, "width", width, "a number above 0 and up to 4")
    first, second, units = (max(1, round(width * number)) for number in (32, 64, 512))
    layers = convolutions(shape[0], first, second, border)
    flat = num_features(f"mcmahan_cnn with padding={padding}", nn.Sequential(layers), shape)
    layers |= {"fc1": nn.Linear(flat, units), "relu3": nn.ReLU()}
    return ExtractorHead(nn.Sequential(layers), nn.Linear(units, num_classes))


mcmahan_cnn.added = ("width",)  # came after the first stored results, see `fedlib.spec`
