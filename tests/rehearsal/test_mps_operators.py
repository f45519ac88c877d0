"""The committed table of MPS's operators is of the locked wheel (cases_impostor.py holds the
studies against it)."""

import mps_operators

# A fused step and a scaler, which the impostor cannot reach.
BEYOND = ("_fused_adam_.default", "_fused_sgd_.default", "_amp_update_scale_.default")
BEYOND += ("_amp_foreach_non_finite_check_and_unscale_.default",)


def test_the_table_is_of_the_version_that_the_lock_names_and_has_fused_steps_and_the_scaler():
    first, *names = mps_operators.TABLE.read_text().splitlines()
    assert first == f"# torch {mps_operators.version()} for macOS on Apple silicon"
    assert set(BEYOND) <= set(names)


def test_an_operator_has_a_kernel_of_its_own_or_is_composed_of_others():
    functions = [
        {"func": "add.Tensor(Tensor self)", "structured_delegate": "add.out"},
        {
            "func": "add.out(Tensor self)",
            "dispatch": {"CPU, CUDA": "add", "MPS": "add_mps"},
            "autogen": "add.made",
        },
        {"func": "relu(Tensor self)", "dispatch": {"CPU": "relu"}},
        {"func": "dense(Tensor self)"},
        {"func": "zeros(Tensor self)", "dispatch": {"CompositeExplicitAutograd": "zeros"}},
    ]
    names = ["add.Tensor", "add.made", "add.out", "dense.default", "zeros.default"]
    assert mps_operators.computing(functions) == names
