"""The data sets: official formats, where files are looked for, and files that are damaged.

All files are made here, in the official formats but with a handful of samples. The real ones are
read too, where they are on this machine.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from gradgroup.experiments import datasets
from gradgroup.experiments.datasets import (
    NAMES,
    BadDataError,
    Images,
    MissingDataError,
    _loading,
    _places,
    find,
    inventory,
    load,
)
from gradgroup.experiments.datasets._errors import about

# Looked up before the tests hide it from the code.
REAL = Path(os.environ.get("GRADGROUP_DATA") or Path(__file__).parents[2] / "shared" / "data")
REAL_SYSTEM = _places.SYSTEM

CIFAR_BATCHES = [*(f"data_batch_{k}" for k in (4, 3, 2, 5, 1)), "test_batch"]  # the official order


@pytest.fixture(autouse=True)
def own_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of the test's own, and no downloads."""

    def refuse(*_: object) -> None:
        raise AssertionError("a test without a server must download nothing")

    monkeypatch.delenv("GRADGROUP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(_places, "SYSTEM", tmp_path / "system")
    monkeypatch.setattr(_loading, "download_file", refuse)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "data"
    found.mkdir()
    return found


def pixels(samples: int, inputs: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (samples, inputs), np.uint8)


def digits(samples: int, low: int = 0) -> np.ndarray:
    return (np.arange(samples) % 10 + low).astype(np.uint8)


def same(images: Images, x: np.ndarray, y: np.ndarray) -> None:
    assert (images.x == x).all()
    assert images.x.shape == x.shape
    assert images.x.dtype == np.uint8
    assert (images.y == y).all()
    assert images.y.shape == y.shape
    assert images.y.dtype == np.int64
    assert images.x.flags.writeable


# Files in the official formats.


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return head + array.tobytes()


def make_idx(folder: Path, x: np.ndarray, y: np.ndarray, part: str = "train") -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    images = folder / f"{part}-images-idx3-ubyte.gz"
    labels = folder / f"{part}-labels-idx1-ubyte.gz"
    images.write_bytes(gzip.compress(idx(x.reshape(-1, 28, 28))))
    labels.write_bytes(gzip.compress(idx(y)))
    return [images, labels]


def make_letters(folder: Path, x: np.ndarray, y: np.ndarray, part: str = "train") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "gzip.zip", "a") as archive:
        for kind, array in (("images-idx3", x.reshape(-1, 28, 28)), ("labels-idx1", y)):
            name = f"gzip/emnist-letters-{part}-{kind}-ubyte.gz"
            archive.writestr(name, gzip.compress(idx(array)))
    return folder / "gzip.zip"


def make_tar(path: Path, contents: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


class Python2Pickler(pickle._Pickler):  # type: ignore[name-defined]
    """Writes text and bytes alike as the strings of Python 2, as the official pickles have them."""

    def save_string(self, text: str | bytes) -> None:
        raw = text.encode() if isinstance(text, str) else text
        short = len(raw) < 256
        head = pickle.SHORT_BINSTRING if short else pickle.BINSTRING
        self.write(head + struct.pack("<B" if short else "<i", len(raw)) + raw)
        self.memoize(text)

    dispatch = pickle._Pickler.dispatch | {str: save_string, bytes: save_string}  # type: ignore[attr-defined]


def python2(value: object) -> bytes:
    buffer = io.BytesIO()
    Python2Pickler(buffer, protocol=2).dump(value)
    return buffer.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def python3(value: object) -> bytes:
    return pickle.dumps(value, protocol=2)


def batch(x: np.ndarray, y: np.ndarray) -> dict[bytes, Any]:
    names = [b"some_image_%d.png" % k for k in range(len(x))]
    labels = [int(label) for label in y]
    return {b"batch_label": b"batch", b"labels": labels, b"data": x, b"filenames": names}


def cut_in_batches(x: np.ndarray, y: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Five batches in a row, and the first of them as the test batch too."""
    cut = {
        f"data_batch_{k}": (xs, ys)
        for k, xs, ys in zip(range(1, 6), np.split(x, 5), np.split(y, 5), strict=True)
    }
    return {name: cut.get(name, cut["data_batch_1"]) for name in CIFAR_BATCHES}


def make_pickles(
    folder: Path, x: np.ndarray, y: np.ndarray, dump: Callable[[object], bytes] = python2
) -> Path:
    batches = cut_in_batches(x, y).items()
    contents = {f"cifar-10-batches-py/{name}": dump(batch(*each)) for name, each in batches}
    return make_tar(
        folder / "cifar-10-python.tar.gz", {"cifar-10-batches-py/readme": b""} | contents
    )


def make_binary(folder: Path, x: np.ndarray, y: np.ndarray) -> Path:
    contents = {
        f"cifar-10-batches-bin/{name}.bin": np.column_stack([labels, images]).tobytes()
        for name, (images, labels) in cut_in_batches(x, y).items()
    }
    return make_tar(folder / "cifar-10-binary.tar.gz", contents)


def stl(x: np.ndarray, y: np.ndarray, part: str = "train") -> dict[str, bytes]:
    return {f"stl10_binary/{part}_X.bin": x.tobytes(), f"stl10_binary/{part}_y.bin": y.tobytes()}


def make_svhn(
    folder: Path, x: np.ndarray, y: np.ndarray, part: str = "train", packed: bool = True
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{part}_32x32.mat"
    arrays = {"X": x.reshape(-1, 3, 32, 32).T, "y": y.reshape(-1, 1)}
    savemat(path, arrays, do_compression=packed)
    return path


# What is read.


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_mnist_and_fashion_mnist(name: str, root: Path) -> None:
    x, y = pixels(7, 784), digits(7)
    make_idx(root / name, x, y)
    make_idx(root / name, x[:3], y[:3], "t10k")
    found = load(name, folder=root)
    same(found, x, y)
    assert (found.name, found.outputs, found.top) == (name, 10, 255)
    same(load(name, "test", folder=root), x[:3], y[:3])


def test_their_files_may_be_unpacked(root: Path) -> None:
    x, y = pixels(7, 784), digits(7)
    for path in make_idx(root / "mnist", x, y):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    same(load("mnist", folder=root), x, y)


def test_letters_keep_their_labels_and_their_orientation(root: Path) -> None:
    x, y = pixels(26, 784), np.arange(1, 27, dtype=np.uint8)
    make_letters(root / "emnist-letters", x, y)
    make_letters(root / "emnist-letters", x[:3], y[:3], "test")
    found = load("emnist-letters", folder=root)
    same(found, x, y)
    assert found.outputs * found.x.shape[1] == 29_008
    same(load("emnist-letters", "test", folder=root), x[:3], y[:3])


@pytest.mark.parametrize("dump", [python2, python3])
def test_cifar_pickles(dump: Callable[[object], bytes], root: Path) -> None:
    x, y = pixels(20, 3072), digits(20)
    make_pickles(root / "cifar10", x, y, dump)
    same(load("cifar10", folder=root), x, y)
    same(load("cifar10", "test", folder=root), x[:4], y[:4])


def test_the_pickles_of_these_tests_are_like_the_official_ones() -> None:
    """Python, left to itself, reads them as it reads those of Python 2."""
    written = python2(batch(pixels(3, 3072), digits(3)))
    assert b"numpy.core.multiarray\n_reconstruct" in written
    assert b"_codecs" not in written
    read = pickle.loads(written, encoding="bytes")
    assert (read[b"data"] == pixels(3, 3072)).all()
    assert read[b"labels"] == [0, 1, 2]


def test_cifar_binary(root: Path) -> None:
    x, y = pixels(20, 3072), digits(20)
    make_binary(root / "cifar10", x, y)
    found = load("cifar10", folder=root)
    same(found, x, y)
    assert (found.outputs, found.top) == (10, 255)
    same(load("cifar10", "test", folder=root), x[:4], y[:4])


def test_stl_counts_its_classes_from_zero(root: Path) -> None:
    x, y = pixels(10, 27_648), digits(10, low=1)
    contents = stl(x[:2], y[:2], "test") | stl(x, y) | {"stl10_binary/unlabeled_X.bin": b"..."}
    make_tar(root / "stl10" / "stl10_binary.tar.gz", contents)
    same(load("stl10", folder=root), x, y - 1)
    same(load("stl10", "test", folder=root), x[:2], y[:2] - 1)


@pytest.mark.parametrize("place", ["stl10", "."])
def test_stl_is_read_from_the_folder_of_its_archive(place: str, root: Path) -> None:
    x, y = pixels(10, 27_648), digits(10, low=1)
    for name, content in stl(x, y).items():
        path = root / place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    same(load("stl10", folder=root), x, y - 1)


def test_a_ten_of_svhn_is_a_zero(root: Path) -> None:
    x, y = pixels(10, 3072), digits(10, low=1)
    make_svhn(root / "svhn", x, y)
    make_svhn(root / "svhn", x[:3], y[:3], "test", packed=False)
    same(load("svhn", folder=root), x, y % 10)
    same(load("svhn", "test", folder=root), x[:3], y[:3] % 10)


def test_svhn_is_read_as_scipy_reads_it(root: Path) -> None:
    images = loadmat(make_svhn(root, pixels(4, 3072), digits(4, low=1)))["X"]
    in_rows = load("svhn", folder=root).x.reshape(4, 3, 32, 32)
    assert (in_rows.transpose(3, 2, 1, 0) == images).all()


def test_digits_are_all_for_training_and_a_fifth_of_them_for_tests() -> None:
    train, test = load("digits"), load("digits", "test")
    assert train.x.shape == (1797, 64)
    assert (train.x.dtype, train.y.dtype) == (np.uint8, np.int64)
    assert (train.outputs, train.top, train.x.max()) == (10, 16, 16)
    same(test, train.x[4::5], train.y[4::5])


def test_a_choice_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"^There is no data set 'minst': choose one of mnist, f"):
        load("minst")
    with pytest.raises(ValueError, match=r"^There is no part 'all' of a data set: choose \"train"):
        load("mnist", "all")  # type: ignore[arg-type]


def test_nothing_slow_is_imported_before_it_is_needed() -> None:
    slow = "'torch', 'pooch', 'requests', 'scipy', 'sklearn', 'tqdm'"
    code = f"import sys, gradgroup.experiments.datasets; print({{{slow}}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# Memory.


def peak(name: str, root: Path) -> int:
    load(name, folder=root)  # imports count for nothing
    tracemalloc.start()
    try:
        load(name, folder=root)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_reading_takes_hardly_more_memory_than_the_pixels(root: Path) -> None:
    x, y = np.zeros((8000, 784), np.uint8), digits(8000)
    make_idx(root / "mnist", x, y)
    assert peak("mnist", root) < x.nbytes + 1_000_000
    x, y = np.zeros((5000, 3072), np.uint8), digits(5000)
    make_binary(root / "cifar10", x, y)
    assert peak("cifar10", root) < 1.2 * x.nbytes + 1_000_000  # a batch beside the array


# Where files are looked for.


def test_the_environment_names_a_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_idx(root / "mnist", pixels(2, 784), digits(2))
    assert find("mnist") is None
    monkeypatch.setenv("GRADGROUP_DATA", str(root))
    found = find("mnist")
    assert found is not None
    assert found.paths[0] == root / "mnist" / "train-images-idx3-ubyte.gz"
    assert (found.name, found.part) == ("mnist", "train")


def test_first_the_argument_then_the_cache_then_the_system(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is only looked into when those before it have nothing."""
    named = tmp_path / "named"
    cache, system = tmp_path / "cache" / "gradgroup", tmp_path / "system"
    for samples, place in enumerate([system, cache, named, root], start=1):
        make_idx(place / "fashion-mnist", pixels(samples, 784), digits(samples))
        monkeypatch.setenv("GRADGROUP_DATA", str(named))
        folder = root if place == root else None
        assert len(load("fashion-mnist", folder=folder).x) == samples


def test_with_the_argument_the_environment_is_not_asked(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_idx(tmp_path / "named" / "mnist", pixels(2, 784), digits(2))
    monkeypatch.setenv("GRADGROUP_DATA", str(tmp_path / "named"))
    assert find("mnist") is not None
    assert find("mnist", folder=root) is None


def test_files_of_unmistakable_names_may_lie_at_the_top(root: Path) -> None:
    for make in (make_binary, make_svhn):
        make(root, pixels(10, 3072), digits(10, low=0 if make is make_binary else 1))
    make_letters(root, pixels(2, 784), digits(2, low=1))
    for name in ("cifar10", "svhn", "emnist-letters"):
        assert find(name, folder=root) is not None


def test_mnist_must_lie_in_its_own_folder(root: Path) -> None:
    """Fashion-MNIST has files of the same names."""
    make_idx(root, pixels(2, 784), digits(2))
    assert find("mnist", folder=root) is None
    assert find("fashion-mnist", folder=root) is None


def test_images_are_not_read_with_labels_from_elsewhere(tmp_path: Path, root: Path) -> None:
    make_idx(root / "mnist", pixels(2, 784), digits(2))[1].unlink()
    make_idx(tmp_path / "cache" / "gradgroup" / "mnist", pixels(3, 784), digits(3))
    assert len(load("mnist", folder=root).x) == 3


def test_a_part_alone_is_enough_for_itself(root: Path) -> None:
    make_svhn(root / "svhn", pixels(2, 3072), digits(2, low=1), "test")
    assert find("svhn", "test", folder=root) is not None
    assert find("svhn", folder=root) is None


def test_what_is_missing_is_said_with_a_cure(tmp_path: Path, root: Path) -> None:
    with pytest.raises(MissingDataError) as caught:
        load("svhn", folder=root, download=False)
    places = [root / "svhn", root, tmp_path / "cache/gradgroup/svhn", tmp_path / "system/svhn"]
    assert str(caught.value) == (
        f"The files of svhn were not found in {', '.join(map(str, places))}: run gradgroup data "
        "--fetch svhn, or put train_32x32.mat, test_32x32.mat into $GRADGROUP_DATA/svhn/."
    )


def test_a_folder_that_is_not_there_is_a_mistake(root: Path) -> None:
    with pytest.raises(
        MissingDataError, match=r"^There is no folder .*/no to look for data in: mak"
    ):
        load("mnist", folder=root / "no")


def test_the_inventory_says_what_is_where_and_how_to_get_it(root: Path) -> None:
    path = make_binary(root / "cifar10", pixels(5, 3072), digits(5))
    make_idx(root / "mnist", pixels(2, 784), digits(2))
    stock = {each.name: each for each in inventory(root)}
    assert tuple(stock) == NAMES
    assert stock["cifar10"].found == path
    assert stock["mnist"].found == root / "mnist"
    assert stock["svhn"].found is None
    assert stock["digits"].found is not None
    assert stock["svhn"].size == 182_040_794 + 64_275_384
    assert stock["svhn"].addresses[1] == "http://ufldl.stanford.edu/housenumbers/test_32x32.mat"
    assert stock["fashion-mnist"].advice == (
        "Run gradgroup data --fetch fashion-mnist, or put train-images-idx3-ubyte.gz, "
        "train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz "
        "into $GRADGROUP_DATA/fashion-mnist/, or install the Debian package dataset-fashion-mnist."
    )


def test_the_inventory_knows_the_papers_models(root: Path) -> None:
    weights = {each.name: each.inputs * each.outputs for each in inventory(root)}
    assert list(weights.values()) == [7840, 7840, 29_008, 30_720, 276_480, 30_720, 640]


# Files that are not what they say. Each error is a sentence and a cure, without a line break.


def wrong(name: str, root: Path) -> str:
    """What is said of the file, without its path and the cure."""
    with pytest.raises(BadDataError) as caught:
        load(name, folder=root)
    text = str(caught.value)
    cure = f". Delete it and fetch it again: gradgroup data --fetch {name}."
    assert text.endswith(cure)
    assert "\n" not in text
    assert str(root) in text
    return text.removesuffix(cure).replace(f"{root}/", "")


IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"


@pytest.fixture
def mnist(root: Path) -> Path:
    """A folder with ten good images, of which a test spoils a file."""
    make_idx(root / "mnist", pixels(10, 784), digits(10))
    return root / "mnist"


def head(*shape: int) -> bytes:
    return bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (head(10, 28, 28)[:12], "is cut short: it has 12 of 16 bytes"),
        (head(60_000, 28, 28) + bytes(100), "is cut short: it has 116 of 47040016 bytes"),
        (head(10, 28, 28) + bytes(7841), "is longer than its header says"),
        (head(10, 32, 32) + bytes(10_240), "has images of 32 × 32 pixels instead of 28 × 28"),
        (head(0, 28, 28), "has no samples"),
        (head(10) + bytes(10), "is not an idx file of bytes in 3 dimensions"),
        (b"<!DOCTYPE html><html>", "is not an idx file of bytes in 3 dimensions"),
        (
            head(2**32 - 1, 28, 28),
            "claims to hold 3367254359280 bytes, more than any file of these data sets",
        ),
        (
            head(2**20, 2**20, 2**20),
            "has images of 1048576 × 1048576 pixels instead of 28 × 28",
        ),
    ],
)
@pytest.mark.parametrize("packed", [True, False])
def test_images_that_are_none(
    content: bytes, said: str, packed: bool, mnist: Path, root: Path
) -> None:
    path = mnist / IMAGES
    path.write_bytes(gzip.compress(content))
    if not packed:
        for each in (path, mnist / LABELS):
            each.with_suffix("").write_bytes(gzip.decompress(each.read_bytes()))
            each.unlink()
        path = path.with_suffix("")
    assert wrong("mnist", root) == f"mnist/{path.name} {said}"


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (digits(7), "has 7 labels for 10 images"),
        (digits(10, low=1), "has labels from 1 to 10, where 0 to 9 are possible"),
    ],
)
def test_labels_that_do_not_fit(labels: np.ndarray, said: str, mnist: Path, root: Path) -> None:
    (mnist / LABELS).write_bytes(gzip.compress(idx(labels)))
    assert wrong("mnist", root) == f"mnist/{LABELS} {said}"


def test_a_packed_file_that_is_cut_short(mnist: Path, root: Path) -> None:
    path = mnist / IMAGES
    path.write_bytes(path.read_bytes()[:4000])
    said = wrong("mnist", root)
    assert said.startswith(f"mnist/{IMAGES} is cut short: it has ")
    assert said.endswith(" of 7856 bytes")


def test_a_packed_file_that_lacks_only_its_end(mnist: Path, root: Path) -> None:
    path = mnist / IMAGES
    path.write_bytes(path.read_bytes()[:-3])
    assert wrong("mnist", root) == f"mnist/{IMAGES} is cut short"


def test_a_file_that_is_not_packed_at_all(mnist: Path, root: Path) -> None:
    (mnist / IMAGES).write_bytes(b"<html>Sign in to the hotel's network</html>")
    assert wrong("mnist", root) == f"mnist/{IMAGES} cannot be read (Not a gzipped file (b'<h'))"


def test_a_bit_that_has_flipped(mnist: Path, root: Path) -> None:
    path = mnist / IMAGES
    content = bytearray(path.read_bytes())
    content[-6] ^= 1
    path.write_bytes(content)
    assert wrong("mnist", root).startswith(f"mnist/{IMAGES} cannot be read (CRC check failed")


def test_a_bomb_is_not_unpacked(mnist: Path, root: Path) -> None:
    """A gigabyte of zeros in a megabyte, behind a header that gives ten images."""
    (mnist / IMAGES).write_bytes(
        gzip.compress(head(10, 28, 28)) + 64 * gzip.compress(bytes(1 << 24))
    )
    tracemalloc.start()
    try:
        assert wrong("mnist", root) == f"mnist/{IMAGES} is longer than its header says"
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


def test_a_folder_in_place_of_a_file_is_no_file(mnist: Path, root: Path) -> None:
    (mnist / IMAGES).unlink()
    (mnist / IMAGES).mkdir()
    assert find("mnist", folder=root) is None


@pytest.mark.parametrize(
    ("error", "said"),
    [(ValueError("two\nlines."), "two lines"), (MemoryError(), "MemoryError")],
)
def test_what_a_library_says_is_put_into_one_line(error: Exception, said: str) -> None:
    with pytest.raises(BadDataError) as caught, about("file"):
        raise error
    assert str(caught.value) == f"file cannot be read ({said})."


def test_a_zip_archive_of_something_else(root: Path) -> None:
    (root / "gzip.zip").write_bytes(b"PK, but not really")
    assert wrong("emnist-letters", root) == "gzip.zip cannot be read (File is not a zip file)"
    with zipfile.ZipFile(root / "gzip.zip", "w") as archive:
        archive.writestr("../../evil", b"evil")
    missing = "gzip/emnist-letters-train-images-idx3-ubyte.gz"
    assert wrong("emnist-letters", root) == f"gzip.zip has no {missing}"


def test_letters_outside_the_alphabet(root: Path) -> None:
    make_letters(root, pixels(2, 784), np.array([0, 27], np.uint8))
    assert wrong("emnist-letters", root) == (
        "gzip/emnist-letters-train-labels-idx1-ubyte.gz in gzip.zip has labels from 0 to 27, where "
        "1 to 26 are possible"
    )


@pytest.fixture
def unharmed(tmp_path: Path) -> Iterator[None]:
    """No file appears while the test reads its data."""
    yield
    assert not list(tmp_path.rglob("*evil*"))
    assert not list(Path().rglob("evil"))


def spoiled(contents: dict[str, bytes], name: str, content: bytes) -> dict[str, bytes]:
    return contents | {f"cifar-10-batches-py/{name}": content}


def cifar_contents() -> dict[str, bytes]:
    batches = cut_in_batches(pixels(20, 3072), digits(20)).items()
    return {f"cifar-10-batches-py/{name}": python2(batch(*each)) for name, each in batches}


class Evil:
    """Whoever unpickles it runs a command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.usefixtures("unharmed")
def test_a_pickle_that_runs_commands_is_refused(tmp_path: Path, root: Path) -> None:
    content = pickle.dumps({b"data": Evil(tmp_path / "evil")}, protocol=2)
    path = root / "cifar-10-python.tar.gz"
    make_tar(path, spoiled(cifar_contents(), "data_batch_3", content))
    assert wrong("cifar10", root) == (
        f"cifar-10-batches-py/data_batch_3 in {path.name} asks for '{os.name}.system', which no "
        "official file does: it was not loaded"
    )


@pytest.mark.parametrize(
    "name",
    ["builtins.eval", "\x1b.evil", "numpy.load", "numpy.fromfile", "_codecs.decode", "codecs.open"],
)
def test_a_pickle_that_asks_for_any_other_name_is_refused(name: str, root: Path) -> None:
    module, function = name.split(".")
    content = b"\x80\x02c" + f"{module}\n{function}\n".encode() + b"."
    make_tar(root / "cifar-10-python.tar.gz", spoiled(cifar_contents(), "data_batch_4", content))
    assert f" asks for {name!r}, which no official file does" in wrong("cifar10", root)


X4, Y4 = pixels(4, 3072), [0, 1, 2, 3]


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        {b"data": X4},
        {b"data": X4, b"labels": 10**15},
        {b"data": X4, b"labels": [0, 1, 2, 256]},
        {b"data": X4, b"labels": [0, 1, 2, b"3"]},
        {b"data": b"", b"labels": Y4},
        {b"data": X4.astype(np.float64), b"labels": Y4},
        {b"data": X4[:, :-1], b"labels": Y4},
        {b"data": X4[:0], b"labels": []},
        {b"data": np.asfortranarray(X4), b"labels": Y4},
        {b"data": X4.reshape(4, 3, 1024), b"labels": Y4},
    ],
)
def test_a_pickle_of_something_else(value: object, root: Path) -> None:
    contents = spoiled(cifar_contents(), "data_batch_4", python2(value))
    make_tar(root / "cifar-10-python.tar.gz", contents)
    assert wrong("cifar10", root) == (
        "cifar-10-batches-py/data_batch_4 in cifar-10-python.tar.gz does not hold images of 3072 "
        "bytes and their labels"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x80\x02}r" + struct.pack("<I", 2**31) + b".", "claims to hold 2147483648 objects"),
        (b"}p2147483648\n.", "claims to hold 2147483648 objects"),
        (b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".", "cannot be read (expected"),
        (pickle.dumps(batch(X4, digits(4)), protocol=4), "is no pickle of protocol 2"),
    ],
)
def test_a_pickle_that_asks_for_memory(content: bytes, said: str, root: Path) -> None:
    make_tar(root / "cifar-10-python.tar.gz", spoiled(cifar_contents(), "data_batch_4", content))
    tracemalloc.start()
    try:
        assert said in wrong("cifar10", root)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_a_pickle_that_is_cut_short(root: Path) -> None:
    contents = spoiled(cifar_contents(), "data_batch_4", python2(batch(X4, digits(4)))[:1000])
    make_tar(root / "cifar-10-python.tar.gz", contents)
    said = wrong("cifar10", root)
    assert said.startswith(
        "cifar-10-batches-py/data_batch_4 in cifar-10-python.tar.gz cannot be read"
    )


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (X4[:3], "has 3 images, and another batch 4"),
        (X4[:, :-1], "has 12288 bytes, which is no multiple of the 3073 of a sample"),
        (X4[:0], "has 0 bytes, which is no multiple of the 3073 of a sample"),
    ],
)
def test_a_binary_batch_that_does_not_fit(rows: np.ndarray, said: str, root: Path) -> None:
    path = make_binary(root, pixels(20, 3072), digits(20))
    content = np.column_stack([digits(len(rows)), rows]).tobytes()
    with tarfile.open(path) as tar:
        contents = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
    make_tar(path, contents | {"cifar-10-batches-bin/data_batch_1.bin": content})
    assert wrong("cifar10", root) == f"cifar-10-batches-bin/data_batch_1.bin in {path.name} {said}"


def test_an_archive_without_its_files(root: Path) -> None:
    make_tar(root / "stl10_binary.tar.gz", {"stl10_binary/train_X.bin": bytes(27_648)})
    assert wrong("stl10", root) == "stl10_binary.tar.gz has no stl10_binary/train_y.bin"


def test_an_archive_that_is_cut_short(root: Path) -> None:
    path = make_binary(root, pixels(20, 3072), digits(20))
    path.write_bytes(path.read_bytes()[:30_000])
    said = wrong("cifar10", root)
    assert said.startswith("cifar-10-batches-bin/data_batch_")
    assert " in cifar-10-binary.tar.gz is cut short: it has " in said


@pytest.mark.usefixtures("unharmed")
def test_nothing_in_an_archive_can_write_anything(root: Path) -> None:
    """Names that lead elsewhere are passed by."""
    x, y = pixels(2, 27_648), digits(2, low=1)
    contents = {"../../evil": b"evil", f"{root}/evil": b"evil", **stl(x, y)}
    make_tar(root / "stl10_binary.tar.gz", contents)
    same(load("stl10", folder=root), x, y - 1)
    assert [path.name for path in root.iterdir()] == ["stl10_binary.tar.gz"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_a_link_in_place_of_a_file_is_not_followed(kind: bytes, tmp_path: Path, root: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(27_648))
    link = tarfile.TarInfo("stl10_binary/train_X.bin")
    link.type, link.linkname = kind, str(secret)
    with tarfile.open(root / "stl10_binary.tar.gz", "w:gz") as tar:
        tar.addfile(link)
    said = wrong("stl10", root)
    assert said == ("stl10_binary.tar.gz has no stl10_binary/train_X.bin, stl10_binary/train_y.bin")


@pytest.mark.parametrize("name", ["cifar-10-batches-py/data_batch_4", "stl10_binary/train_X.bin"])
def test_a_member_that_claims_to_be_huge(name: str, root: Path) -> None:
    data = "cifar10" if name.startswith("cifar") else "stl10"
    archive = {"cifar10": "cifar-10-python.tar.gz", "stl10": "stl10_binary.tar.gz"}[data]
    info = tarfile.TarInfo(name)
    info.size = 27_648 * 2**40
    with gzip.open(root / archive, "wb") as file:
        file.write(info.tobuf() + bytes(100_000))
    assert wrong(data, root) == (
        f"{name} in {archive} claims to hold {info.size} bytes, more than any file of these data "
        "sets"
    )


def test_stl_files_that_do_not_fit(root: Path) -> None:
    folder = root / "stl10_binary"
    folder.mkdir()
    (folder / "train_X.bin").write_bytes(bytes(27_647))
    (folder / "train_y.bin").write_bytes(bytes([1, 11]))
    assert wrong("stl10", root) == (
        "stl10_binary/train_X.bin has 27647 bytes, which is no multiple of the 27648 of a sample"
    )
    (folder / "train_X.bin").write_bytes(bytes(2 * 27_648))
    assert wrong("stl10", root) == (
        "stl10_binary/train_y.bin has labels from 1 to 11, where 1 to 10 are possible"
    )


X5 = pixels(5, 3072).reshape(5, 3, 32, 32).T
Y5 = digits(5, low=1)[:, None]


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"X": X5}, "does not have both an array X and an array y"),
        ({"X": X5 / 255, "y": Y5}, "has an array 'X' of other numbers than bytes"),
        ({"X": X5, "y": "12345"}, "has an array 'y' of other numbers than bytes"),
        (
            {"X": X5[:28], "y": Y5},
            "has X of shape (28, 32, 3, 5) and y of shape (5, 1) instead of (32, 32, 3, samples) "
            "and (samples, 1)",
        ),
        (
            {"X": X5, "y": Y5[:4]},
            "has X of shape (32, 32, 3, 5) and y of shape (4, 1) instead of (32, 32, 3, samples) "
            "and (samples, 1)",
        ),
        ({"X": X5, "y": Y5 - 1}, "has labels from 0 to 4, where 1 to 10 are possible"),
    ],
)
@pytest.mark.parametrize("packed", [True, False])
def test_matlab_files_of_something_else(
    arrays: dict[str, Any], said: str, packed: bool, root: Path
) -> None:
    savemat(root / "train_32x32.mat", arrays, do_compression=packed)
    assert wrong("svhn", root) == f"train_32x32.mat {said}"


@pytest.mark.parametrize(
    ("position", "number", "said"),
    [
        (124, b"\1\0MI", "is not a file of MATLAB, version 5"),
        (172, struct.pack("<i", 2**30), "has 15360 numbers for the shape (32, 32, 3, 1073741824)"),
        # The type of the numbers: SciPy ends Python with a segmentation fault.
        (184, b"\xff\0\0\0", "has an array 'X' of other numbers than bytes"),
        (188, struct.pack("<I", 2**31), "claims to hold 2147483648 bytes, more than any file"),
        (188, struct.pack("<I", 2**20), "is cut short: it has 15424 of 1048576 bytes"),
    ],
)
def test_a_matlab_file_with_a_wrong_number(
    position: int, number: bytes, said: str, root: Path
) -> None:
    path = root / "train_32x32.mat"
    savemat(path, {"X": X5, "y": Y5})
    content = bytearray(path.read_bytes())
    content[position : position + len(number)] = number
    path.write_bytes(content)
    assert wrong("svhn", root).startswith(f"train_32x32.mat {said}")


def test_a_packed_matlab_file_with_a_bit_that_has_flipped(root: Path) -> None:
    path = make_svhn(root, pixels(5, 3072), digits(5, low=1))
    content = bytearray(path.read_bytes())
    content[10_000] ^= 1
    path.write_bytes(content)
    assert wrong("svhn", root).startswith("train_32x32.mat cannot be read (Error -3 while decompr")


def test_a_bomb_in_a_matlab_file_is_not_unpacked(root: Path) -> None:
    path = root / "train_32x32.mat"
    savemat(path, {"X": X5, "y": Y5})
    head, matrix = path.read_bytes()[:128], path.read_bytes()[128 : 192 + X5.size]
    bomb = zlib.compress(matrix + bytes(50_000_000))
    path.write_bytes(head + struct.pack("<2I", 15, len(bomb)) + bomb)
    tracemalloc.start()
    try:
        assert wrong("svhn", root) == "train_32x32.mat is longer than its header says"
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [0, 10, 127, 128, 130, 200, 5000, -10])
def test_a_matlab_file_that_is_cut_short(length: int, root: Path) -> None:
    path = make_svhn(root, pixels(5, 3072), digits(5, low=1))
    path.write_bytes(path.read_bytes()[:length])
    said = wrong("svhn", root)
    assert " is cut short" in said or said.endswith(" does not have both an array X and an array y")


# The real files, where they are.


def test_the_real_mnist() -> None:
    if find("mnist", folder=REAL if REAL.is_dir() else None) is None:
        pytest.skip("put MNIST's four files into $GRADGROUP_DATA/mnist/ to read them here")
    train, test = load("mnist", folder=REAL), load("mnist", "test", folder=REAL)
    assert train.x.shape == (60_000, 784)
    assert test.x.shape == (10_000, 784)
    assert train.y[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert np.bincount(train.y)[1] == 6742
    assert round(float(train.x.mean()), 4) == 33.3184


def test_the_real_fashion_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_places, "SYSTEM", REAL_SYSTEM)
    folder = REAL if REAL.is_dir() else None
    if find("fashion-mnist", folder=folder) is None:
        pytest.skip("install the Debian package dataset-fashion-mnist to read it here")
    train = load("fashion-mnist", folder=folder)
    assert train.x.shape == (60_000, 784)
    assert (np.bincount(train.y) == 6000).all()
    assert len(load("fashion-mnist", "test", folder=folder).y) == 10_000


def test_the_package_exports_what_it_documents() -> None:
    assert all(hasattr(datasets, name) for name in datasets.__all__)
