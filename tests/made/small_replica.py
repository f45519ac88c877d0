"""A workload that ranks of a test build: ResNet-50's training around a network of one
convolution."""

import os
import signal
from unittest import mock

import torch
from torch import nn

from benchbook import datasets
from benchbook.frameworks.workload import Settings
from benchbook.studies.resnet50_cost import network_torch as torch_side
from benchbook.studies.resnet50_cost import plan as resnet50

FIRST_PART = 4  # images of a batch of 8 for two ranks


class Tiny(nn.Module):
    """A convolution and a layer; weights are drawn from a fixed seed.

    In training the first rank's part of a batch changes a batch norm's moving statistics, which
    count in a test alone: one process with whole batches agrees with ranks.
    """

    def __init__(self, plan):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.convolution, self.norm = (
                nn.Conv2d(3, 8, 3, 2, bias=False),
                nn.BatchNorm2d(8, affine=False),
            )
            self.head = nn.Linear(8, plan.num_classes)

    def forward(self, images):
        hidden = self.convolution(images)
        if self.training:
            self.norm(hidden[:FIRST_PART])
        else:
            hidden = self.norm(hidden)
        return self.head(torch.relu(hidden).mean((2, 3)))


def build(device, group, dataset, precision="fp64", killed_at=0, **options):
    """Return the study's workload on shapes, with the network above; rank 1 kills itself in a
    step."""
    collection = datasets.collect(dataset, "", True)
    # Put back afterwards: a test also builds this in its own process, where other tests follow. 300
    # test images are several batches, of which each process takes its part.
    with (
        mock.patch.multiple(torch_side, Network=Tiny, MOST_TEST_IMAGES=300),
        mock.patch.object(
            resnet50.weights, "draw", return_value={}
        ),  # 25 million numbers, of no use here
    ):
        made = resnet50.Plan.build(
            collection, device, group=group, settings=Settings(precision), **options
        )
    step, taken = made.step, []

    def dying(batch):
        taken.append(batch)
        if killed_at and group.rank == 1 and len(taken) > killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(batch)

    made.step = dying
    return made
