"""Read by each Python process of SGLang, as this folder is on its path.

The torchvision of the package index is linked against CUDA, so beside a CPU build of torch its operators are absent,
and importing it fails where it describes them. SGLang imports it and, for a text model, never calls it. So the
operators get their signatures, and nothing more, just before torchvision is looked for.
"""

import sys
from importlib.abc import MetaPathFinder

SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
KEPT = []  # a library's definitions go when the library does


class BeforeTorchvision(MetaPathFinder):
    """Finds nothing; acts once, when torchvision is imported."""

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                library.define(operator + SIGNATURE)
            KEPT.append(library)


sys.meta_path.insert(0, BeforeTorchvision())
