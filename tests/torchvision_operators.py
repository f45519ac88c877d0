"""Declare the operators that torchvision's CUDA wheel cannot load beside a CPU-only torch; `-p` loads this first.

PyPI's torchvision for Linux is built for CUDA. Without CUDA's libraries its compiled operators stay away, and then its
own import fails on these two, which no study uses. Only test_environments.py needs this.
"""

import torch

LIBRARY = torch.library.Library("torchvision", "DEF")  # lives as long as the process
for name in ("nms", "qnms"):
    LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
