"""TensorFlow as it will be on a GPU that is not here; test_cases.py runs this file in a process
of its own.

Graphs are traced for a GPU and computed by the CPU, since TensorFlow places operations softly.
Which of them the GPU would compute, the registry tells; see kernels.py.
"""

from collections import Counter

import kernels
import numpy
import pytest
import tensorflow
from tensorflow.python.framework import op_callbacks

from benchbook.frameworks import operations
from benchbook.frameworks.devices import Device
from benchbook.frameworks.keras.runtime import (
    ResidentArrays,
    arithmetic,
    as_gatherable,
    import_keras,
)
from benchbook.frameworks.keras.training import KerasWorkload
from benchbook.frameworks.tensorflow import training as placement
from benchbook.frameworks.workload import Settings
from benchbook.measuring import protocol
from made import small
from made.fakes import run

CPU, CUDA, METAL = (Device(kind, "a chip", "tensorflow") for kind in ("cpu", "cuda", "metal"))
ORDER = [numpy.array([5, 3, 3], "int32"), numpy.array([0, 19, 1], "int32")]


def graphs(workload: KerasWorkload) -> list:
    """Return the concrete functions of a workload: taking resident batches, training,
    evaluation."""
    network, batch = workload.network, next(workload.batches(0))
    (train,) = (
        network._train.args
    )  # what is called after the first step, whose placement is watched
    with arithmetic(workload.device, network.precision):
        parts = network.scatter(*batch)
        traced = [function.get_concrete_function(*parts) for function in (train, network._score)]
    resident = [cell.cell_contents for cell in workload.train_batches.__closure__ or ()]
    return traced + [graph_of(arrays) for arrays in resident if isinstance(arrays, ResidentArrays)]


def graph_of(arrays: ResidentArrays):
    """Return the concrete function that takes batches; one was taken before."""
    (graph,) = arrays._take._list_all_concrete_functions()
    return graph


@pytest.mark.parametrize("dtype", ["uint8", "int32"])
def test_resident_batches_are_the_same_on_a_gpu_and_taken_there(dtype):
    keras = import_keras("tensorflow")
    images, labels = small.COLOURED.train_images, small.COLOURED.train_labels
    target = labels.astype("int32") if dtype == "int32" else images[..., :1]
    each = []
    for device in (CPU, CUDA, METAL):
        arrays = ResidentArrays(
            device, images, target, lambda chosen: keras.ops.cast(chosen, "float32") / 255.0
        )
        each.append([(pixels.numpy(), chosen.numpy()) for pixels, chosen in arrays.batches(ORDER)])
    for batches in each[1:]:
        for (pixels, chosen), (expected_pixels, expected) in zip(batches, each[0], strict=True):
            numpy.testing.assert_array_equal(pixels, expected_pixels)
            numpy.testing.assert_array_equal(chosen, expected)
    graph = graph_of(arrays)
    assert kernels.missing(graph) == Counter()
    # Whatever the device, TensorFlow keeps int32 on the host: a result of that type makes each step
    # wait for a copy.
    assert not {part.dtype for part in graph.structured_outputs} & {
        tensorflow.int32,
        tensorflow.uint8,
    }
    assert {part.dtype for part in graph.inputs[:2]} <= {tensorflow.float16, tensorflow.float32}


def test_no_gpu_can_take_lines_of_bytes():
    """What resident data did before; if this changes, `as_gatherable` is no longer needed."""

    @tensorflow.function
    def take(images, indices):
        return tensorflow.gather(images, indices)

    graph = take.get_concrete_function(numpy.zeros((4, 2), "uint8"), numpy.zeros(2, "int32"))
    assert dict(kernels.missing(graph)) == {
        "GatherV2(Taxis=int32, Tindices=int32, Tparams=uint8)": 1
    }


@pytest.mark.parametrize("direction", ["host_to_device", "device_to_host"])
def test_a_transfer_copies_each_time_and_runs_no_operation(direction):
    """An operation under another device would take the source's mirror from its second call on,
    and move nothing."""
    move, executed = operations.copy(CPU, 64, direction), []

    def note(op_type, inputs, attrs, outputs, op_name=None, graph=None):
        executed.append(op_type)

    op_callbacks.add_op_callback(note)
    try:
        copies = [move(None) for _ in range(3)]
    finally:
        op_callbacks.remove_op_callback(note)
    assert executed == []
    assert [copy.numpy().sum() for copy in copies] == [16.0] * 3


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_calibrated_operation_that_the_cpu_computes_for_another_device_is_refused(precision):
    """Without a GPU, as without a kernel for one, soft placement puts the product on the CPU and
    says nothing."""
    with pytest.raises(NotImplementedError, match="CPU:0 computes it; allowed: GPU:0"):
        operations.multiplication(METAL, 8, precision)
    assert operations.multiplication(CPU, 8, precision)(None).shape == (8, 8)
    for make in (operations.copy, lambda device, count: device.backend.launch(device)):
        with pytest.raises(NotImplementedError, match="CPU:0 computes it"):
            make(METAL, 64)


def test_numbers_that_floats_cannot_hold_are_refused():
    with pytest.raises(ValueError, match=r"16777217.* in resident data; allowed: integers up to 2"):
        as_gatherable(CUDA, numpy.array([2**24 + 1], "int32"))
    assert as_gatherable(CPU, numpy.array([2**24 + 1], "int32")).dtype == "int32"


@pytest.mark.parametrize(
    ("study", "precision", "resident"),
    [
        ("segmentation_scaling", "fp32", True),
        *(
            pytest.param(study, precision, resident, marks=pytest.mark.slow)
            for study in ("mobilenetv2_energy", "segmentation_scaling", "resnet50_cost")
            for precision in ("fp32", "amp_fp16", "amp_bf16", "bf16", "fp16")
            for resident in (True, False)
        ),
    ],
)
def test_every_operation_of_a_workload_has_a_kernel_on_cuda(study, precision, resident):
    trains_all = {"trainable": not resident} if study == "mobilenetv2_energy" else {}
    workload = small.build_either_way(
        study, CUDA, resident, settings=Settings(precision=precision), **trains_all
    )
    for graph in graphs(workload):
        assert dict(kernels.missing(graph)) == {}


def build_tiny(device: Device) -> KerasWorkload:
    """Return a workload that enlarges its images with bilinear interpolation."""
    keras = import_keras("tensorflow")

    def make_model():
        pixels = keras.Input((4, 4, 3))
        larger = keras.layers.UpSampling2D(interpolation="bilinear")(
            keras.layers.Conv2D(2, 1)(pixels)
        )
        return keras.Model(pixels, keras.layers.Dense(3)(keras.layers.Flatten()(larger)))

    batch = numpy.zeros((4, 4, 4, 3), "float32"), numpy.arange(4, dtype="int32") % 3
    return small.keras_workload(
        device, lambda epoch: [batch], [batch], batch_size=4, make_model=make_model
    )


def test_what_a_step_computes_elsewhere_is_counted_and_said(tmp_path, capsys):
    """A GPU that is not there: soft placement computes all of it on the CPU, and says nothing."""
    workload, record = build_tiny(METAL), run(tmp_path)
    protocol.warm_up(workload, record, 1)
    misplaced = record.manifest["misplaced_operations"]
    assert misplaced["ResizeBilinearGrad(float32)"] == 1
    assert misplaced == workload.misplaced_operations()
    said = capsys.readouterr().out
    assert f"Not computed on metal: {sum(misplaced.values())} operations of each step" in said


def test_operations_that_are_where_they_should_be_are_not_counted(tmp_path, capsys):
    workload, record = build_tiny(CPU), run(tmp_path)
    protocol.warm_up(workload, record, 1)
    assert workload.misplaced_operations() == {}
    assert "misplaced_operations" not in record.manifest
    assert "Not computed" not in capsys.readouterr().out


def test_a_node_counts_where_it_computes_and_not_where_it_hands_on():
    graph = tensorflow.compat.v1.GraphDef()
    for op, place in (
        ("Conv2D", "GPU:0"),
        ("Cast", "CPU:0"),
        ("_Send", "CPU:0"),
        ("Cast", "CPU:0"),
        ("NoOp", "CPU:0"),
    ):
        node = graph.node.add(op=op, device=f"/job:localhost/replica:0/task:0/device:{place}")
        if op == "Cast":
            node.attr["SrcT"].type = tensorflow.uint8.as_datatype_enum
    assert Counter(placement.misplaced(graph, "GPU:0")) == {"Cast(uint8)": 2}
