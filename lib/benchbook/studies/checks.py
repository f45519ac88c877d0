"""The checks of rows and packs, which know the studies' names of points."""

from benchbook.rows.packing import Packer
from benchbook.studies.experiments.parameters import point_name

CHECKS = Packer(point_name)
