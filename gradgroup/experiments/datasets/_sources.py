"""The data sets as they are published: addresses, sizes, checksums and editions.

The first address of a file is the official one; the others have the same file. The first edition
of a data set is the one to download. MNIST and Fashion-MNIST have files of the same names, so these
are only told apart by the folder they are in.
"""

from __future__ import annotations

from gradgroup.experiments.datasets import _cifar, _idx, _stl10, _svhn
from gradgroup.experiments.datasets._records import Edition, File, Read, Source

DIGITS = "digits"

# The host refuses most downloads of late, hence the second address.
MNIST_AT = ("http://yann.lecun.com/exdb/mnist", "https://ossci-datasets.s3.amazonaws.com/mnist")
FASHION_AT = (
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
)
EMNIST_AT = ("https://biometrics.nist.gov/cs_links/EMNIST",)
CIFAR_AT = ("https://www.cs.toronto.edu/~kriz",)
STL_AT = ("http://ai.stanford.edu/~acoates/stl10", "https://cs.stanford.edu/~acoates/stl10")
SVHN_AT = ("http://ufldl.stanford.edu/housenumbers",)


TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def file(name: str, size: int, sha256: str, folders: tuple[str, ...]) -> File:
    return File(name, size, sha256, tuple(f"{folder}/{name}" for folder in folders))


def packed(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}.gz" for name in names)


def like_mnist(*known: tuple[int, str], folders: tuple[str, ...]) -> tuple[File, ...]:
    """MNIST's four files, given the size and the checksum of each."""
    names = packed(TRAIN + TEST)
    return tuple(file(name, *each, folders) for name, each in zip(names, known, strict=True))


def archive(name: str, read: Read) -> Edition:
    """An edition that has both parts in one file."""
    return Edition((name,), (name,), read)


IDX = (
    Edition(packed(TRAIN), packed(TEST), _idx.read_packed),
    Edition(TRAIN, TEST, _idx.read_unpacked),
)

MNIST = Source(
    name="mnist",
    samples=60_000,
    inputs=_idx.INPUTS,
    outputs=10,
    files=like_mnist(
        (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
        folders=MNIST_AT,
    ),
    editions=IDX,
)

FASHION = Source(
    name="fashion-mnist",
    samples=60_000,
    inputs=_idx.INPUTS,
    outputs=10,
    files=like_mnist(
        (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
        folders=FASHION_AT,
    ),
    editions=IDX,
    elsewhere="install the Debian package dataset-fashion-mnist",
)

LETTERS = Source(
    name="emnist-letters",
    samples=124_800,
    inputs=_idx.INPUTS,
    outputs=37,  # the paper's model has 29,008 parameters: 784 × 37, though letters are 1 to 26
    files=(
        file(
            "gzip.zip",
            561_753_746,
            "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
            EMNIST_AT,
        ),
    ),
    editions=(archive("gzip.zip", _idx.read_letters),),
)

CIFAR = Source(
    name="cifar10",
    samples=50_000,
    inputs=_cifar.INPUTS,
    outputs=10,
    files=(
        file(
            "cifar-10-binary.tar.gz",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            CIFAR_AT,
        ),
    ),
    editions=(
        archive("cifar-10-binary.tar.gz", _cifar.read_binary),
        archive("cifar-10-python.tar.gz", _cifar.read_pickles),
    ),
    elsewhere="put cifar-10-python.tar.gz there",
)

STL = Source(
    name="stl10",
    samples=5_000,
    inputs=_stl10.INPUTS,
    outputs=10,
    files=(
        file(
            "stl10_binary.tar.gz",
            2_640_397_119,
            "f31fd99273a1acb8609c8db427cebb1de3f71de77758cdc0e22956e1289b9866",
            STL_AT,
        ),
    ),
    editions=(
        archive("stl10_binary.tar.gz", _stl10.read_archive),
        Edition(
            ("stl10_binary/train_X.bin", "stl10_binary/train_y.bin"),
            ("stl10_binary/test_X.bin", "stl10_binary/test_y.bin"),
            _stl10.read_folder,
        ),
    ),
    elsewhere="put the folder stl10_binary there",
)

SVHN = Source(
    name="svhn",
    samples=73_257,
    inputs=_svhn.INPUTS,
    outputs=10,
    files=(
        file(
            "train_32x32.mat",
            182_040_794,
            "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            SVHN_AT,
        ),
        file(
            "test_32x32.mat",
            64_275_384,
            "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            SVHN_AT,
        ),
    ),
    editions=(Edition(("train_32x32.mat",), ("test_32x32.mat",), _svhn.read),),
)

SOURCES = {source.name: source for source in (MNIST, FASHION, LETTERS, CIFAR, STL, SVHN)}
NAMES = (*SOURCES, DIGITS)
