"""Inputs from text: every form, what each refuses, and that a seed means the same values everywhere."""

import ml_dtypes
import numpy as np
import pytest

from trn_sim.inputs import InputError, parse_argument, parse_arguments


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [
        ("bf16[4,8]", ml_dtypes.bfloat16, (4, 8)),
        ("f32[3]", np.float32, (3,)),
        ("float32[2,2,2]", np.float32, (2, 2, 2)),
        ("f16[]", np.float16, ()),
        ("f8e4m3[2,2]", ml_dtypes.float8_e4m3, (2, 2)),
        ("i32[5]", np.int32, (5,)),
        ("uint8[5]", np.uint8, (5,)),
        ("bool[5]", np.bool_, (5,)),
    ],
)
def test_generated_dtype_and_shape(text, dtype, shape):
    value = parse_argument(text)
    assert value.dtype == dtype
    assert value.shape == shape


def test_default_values_are_normal_floats_and_small_integers():
    floats = parse_argument("f32[200,200]")
    assert abs(floats.mean()) < 0.02
    assert abs(floats.std() - 1) < 0.02
    integers = parse_argument("i8[10000]")
    assert (integers.min(), integers.max()) == (0, 127)
    assert set(np.unique(parse_argument("bool[100]"))) == {False, True}


def test_named_generators():
    np.testing.assert_array_equal(parse_argument("zeros:f32[2,3]"), np.zeros((2, 3), np.float32))
    np.testing.assert_array_equal(parse_argument("ones:bf16[2,3]"), np.ones((2, 3), ml_dtypes.bfloat16))
    np.testing.assert_array_equal(parse_argument("range:i32[2,3]"), [[0, 1, 2], [3, 4, 5]])
    uniform = parse_argument("rand:f32[1000]")
    assert 0 <= uniform.min() < 0.1
    assert 0.9 < uniform.max() < 1
    shifted = parse_argument("rand(-2,3.5):f32[1000]")
    assert -2 <= shifted.min() < -1.5
    assert 3 < shifted.max() < 3.5
    assert set(np.unique(parse_argument("rand(5,8):i32[200]"))) == {5, 6, 7}
    narrow = parse_argument("randn(10,0.5):f32[10000]")
    assert abs(narrow.mean() - 10) < 0.05
    assert abs(narrow.std() - 0.5) < 0.05


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("-0.5", -0.5), ("True", True), ("None", None), ("'causal'", "causal"), ("(2, 4)", (2, 4))],
)
def test_literals(text, value):
    assert parse_argument(text) == value


def test_stored_arrays(tmp_path):
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    np.testing.assert_array_equal(parse_argument(f"@{tmp_path}/a.npy"), array)
    np.savez(tmp_path / "b.npz", x=array, y=array + 1)
    np.testing.assert_array_equal(parse_argument(f"@{tmp_path}/b.npz:y"), array + 1)
    with pytest.raises(InputError, match="holds x, y"):
        parse_argument(f"@{tmp_path}/b.npz")


def test_stored_bfloat16_needs_its_name_and_gets_it(tmp_path):
    array = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    np.save(tmp_path / "w.npy", array)
    np.testing.assert_array_equal(parse_argument(f"bf16@{tmp_path}/w.npy"), array)
    with pytest.raises(InputError, match=r"w=bf16@"):
        parse_argument(f"@{tmp_path}/w.npy", name="w")
    with pytest.raises(InputError, match="float32 has 4"):
        parse_argument(f"f32@{tmp_path}/w.npy")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bf17[2]", "no array of dtype 'bf17'"),
        ("tfloat32[2]", "no array of dtype"),
        ("f32[2,-1]", "positive whole numbers"),
        ("f32[2,0]", "positive whole numbers"),
        ("f32[a]", "list of numbers"),
        ("noise:f32[2]", "no generator 'noise'"),
        ("randn:i32[2]", "normal values are floats"),
        ("rand(1):f32[2]", "low, high"),
        ("rand(5,5):i32[2]", "low >= high"),
        ("ones(3):f32[2]", "ones takes nothing"),
        ("@missing.npy", "missing.npy"),
        ("causal", "cannot read 'causal'"),
    ],
)
def test_refused(text, message):
    with pytest.raises(InputError, match=message):
        parse_argument(text, name="x")


def test_pickles_are_not_opened(tmp_path):
    np.save(tmp_path / "o.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="cannot read"):
        parse_argument(f"@{tmp_path}/o.npy")


def test_seed_and_name_decide_the_values():
    first = parse_arguments(["a=f32[8]", "b=f32[8]"], seed=1)
    assert not np.array_equal(first["a"], first["b"])
    alone = parse_arguments(["b=f32[8]"], seed=1)
    np.testing.assert_array_equal(first["b"], alone["b"])
    assert not np.array_equal(alone["b"], parse_arguments(["b=f32[8]"], seed=2)["b"])


@pytest.mark.parametrize("texts", [["a"], ["2a=3"], ["a=1", "a=2"]])
def test_malformed_arguments(texts):
    with pytest.raises(InputError):
        parse_arguments(texts)
