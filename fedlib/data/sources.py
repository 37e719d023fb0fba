"""The data sets of the four papers: where they come from, what they hold, under which terms. No behaviour, only facts.

MNIST, Fashion-MNIST, EMNIST and CIFAR are torchvision's; addresses and sums of CINIC-10, Tiny ImageNet, DomainNet and
PACS, which stands in for DomainNet, are those that several independent public projects use. Terms are quoted briefly;
the sources' own pages are what counts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from fedlib.data import pictures, readers
from fedlib.data.download import RemoteFile


@dataclass(frozen=True)
class Source:
    """A data set that can be had. shape: (channels, height, width); megabytes: of the download.

    images: how many there are; where they are `exact`, this and the number of classes are checked after preparing.
    read: a reader, see `fedlib.data.readers`; None for what comes with fedlib. torchvision: its class that downloads
    and reads the files. by_hand: how to get files that have no address, or what else can be placed. instead: a file
    that a person may place in place of all others.
    """

    images: int
    shape: tuple[int, int, int]
    classes: int
    megabytes: int
    terms: str
    citation: str
    files: tuple[RemoteFile, ...] = ()
    read: Callable | None = None
    exact: bool = True
    by_hand: str = ""
    instead: RemoteFile | None = None
    torchvision: str = ""


def _file(checksum: str, url: str, *mirrors: str) -> tuple[RemoteFile]:
    """One file, called as in its first address."""
    return (RemoteFile(url.rpartition("/")[2], (url, *mirrors), checksum),)


def _torchvision(kind: str, images: int, shape: tuple, classes: int, megabytes: int, *urls: str, **about) -> Source:
    """A data set that torchvision has; its option is the part of EMNIST. urls: of its files, which MNIST and its kin
    keep two folders below."""
    where = f"{kind}/raw/" if shape[0] == 1 else ""
    files = tuple(RemoteFile(where + url.rpartition("/")[2], (url,)) for url in urls)
    options = {"split": "byclass"} if kind == "EMNIST" else {}
    read = functools.partial(readers.read_torchvision, kind=kind, **options)
    return Source(images, shape, classes, megabytes, files=files, read=read, torchvision=kind, **about)


MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
IDX_NAMES = [f"{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")]
CIFAR_URL = "https://www.cs.toronto.edu/~kriz/"
CIFAR_TERMS = "no licence stated; the authors ask for a citation"
CIFAR_CITATION = "A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, technical report, 2009"

DOMAINS = {  # md5 of the images, of the training list, of the test list
    "clipart": "cd0d8f2d77a4e181449b78ed62bccf1e b4349693a7f9c05c53955725c47ed6cb f5ddbcfd657a3acf9d0f7da10db22565",
    "infograph": "720380b86f9e6ab4805bb38b6bd135f8 379b50054f4ac2018dca4f89421b92d9 779626b50869edffe8ea6941c3755c71",
    "painting": "1ae32cdb4f98fe7ab5eb0a351768abfd 7db0e7ca73ad9982f6e1f7f3ef372c0a 232b35dc53f26d414686ae579e38d9b5",
    "quickdraw": "bdc1b6f09f277da1a263389efe0c7a66 b732ced3939ac8efdd8c0a889dca56cc c1a828fdfe216fb109f1c0083a252c6f",
    "real": "dcc47055e8935767784b7162e7c7cca6 8ebf02c2075fadd564705f0dc7cd6291 6098816791c3ebed543c71ffa11b9054",
    "sketch": "658d8009644040ff7ce30bb2e820850f 1233bd18aa9a8a200bf4cecf1c34ef3e d8a222e4672cfd585298aa14d02ea441",
}

PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
PACS = {  # images of every domain by class
    "art_painting": (379, 255, 285, 184, 201, 295, 449),
    "cartoon": (389, 457, 346, 135, 324, 288, 405),
    "photo": (189, 202, 182, 186, 199, 280, 432),
    "sketch": (772, 740, 753, 608, 816, 80, 160),
}
PACS_URL = (
    "https://huggingface.co/datasets/flwrlabs/pacs/resolve/394113073258ead631f617d2e13bb377c0715c4b/data/"
    "train-00000-of-00001.parquet"
)


def _domainnet_files() -> tuple[RemoteFile, ...]:
    """Images and lists of the cleaned version; only clipart and painting have cleaned archives of their own."""
    url, files = "http://csr.bu.edu/ftp/visda/2019/multi-source/", []
    for domain, sums in DOMAINS.items():
        images, *lists = sums.split()
        folder = "groundtruth/" if domain in ("clipart", "painting") else ""
        files += _file(f"md5:{images}", f"{url}{folder}{domain}.zip")
        for part, md5 in zip(("train", "test"), lists):
            files += _file(f"md5:{md5}", f"{url}domainnet/txt/{domain}_{part}.txt")
    return tuple(files)


DATASETS = {
    "digits": Source(
        1_797, (1, 16, 16), 10, 0,
        terms="CC BY 4.0",
        citation="E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, "
        "1998",
    ),
    "digits_looks": Source(
        1_797, (1, 16, 16), 10, 0,
        terms="CC BY 4.0, as the digits that it is made from",
        citation="made by fedlib.data.embedded from the digits: six looks that differ in size, in place of domains",
    ),
    "digits_large": Source(
        1_797, (1, 32, 32), 10, 0,
        terms="CC BY 4.0, as the digits that it is made from",
        citation="the digits upscaled to the size of CIFAR's images, so that networks have maps as large as there",
    ),
    "heart": Source(
        920, (13, 1, 1), 2, 0,
        terms="CC BY 4.0",
        citation="A. Janosi, W. Steinbrunn, M. Pfisterer, R. Detrano, Heart Disease, UCI Machine Learning Repository, "
        "1989",
    ),
    "mnist": _torchvision(
        "MNIST", 70_000, (1, 28, 28), 10, 12, *(MNIST_URL + name for name in IDX_NAMES),
        terms="CC BY-SA 3.0",
        citation="Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, Gradient-Based Learning Applied to Document "
        "Recognition, 1998",
    ),
    "fmnist": _torchvision(
        "FashionMNIST", 70_000, (1, 28, 28), 10, 31, *(FASHION_URL + name for name in IDX_NAMES),
        terms="MIT",
        citation="H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST, arXiv:1708.07747, 2017",
    ),
    "emnist": _torchvision(
        "EMNIST", 814_255, (1, 28, 28), 62, 562, "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
        terms="no licence stated; derived from NIST Special Database 19",
        citation="G. Cohen, S. Afshar, J. Tapson, A. van Schaik, EMNIST, arXiv:1702.05373, 2017 (by class)",
    ),
    "femnist": Source(
        817_851, (1, 28, 28), 62, 0,  # with LEAF's whole data: 3,597 writers; its page says 805,263 images of 3,550
        terms="LEAF: BSD 2-clause; images derived from NIST Special Database 19",
        citation="S. Caldas et al., LEAF: A Benchmark for Federated Settings, arXiv:1812.01097, 2018",
        files=(RemoteFile("all_data_*.json"),),
        read=readers.read_leaf,
        exact=False,
        by_hand="clone https://github.com/TalwalkarLab/leaf, run ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample in "
        "its "
        "data/femnist with pillow older than 10, which downloads NIST's images, and copy data/all_data/all_data_*.json",
    ),
    "cifar10": _torchvision(
        "CIFAR10", 60_000, (3, 32, 32), 10, 170, CIFAR_URL + "cifar-10-python.tar.gz",
        terms=CIFAR_TERMS, citation=CIFAR_CITATION,
    ),
    "cifar100": _torchvision(
        "CIFAR100", 60_000, (3, 32, 32), 100, 169, CIFAR_URL + "cifar-100-python.tar.gz",
        terms=CIFAR_TERMS, citation=CIFAR_CITATION,
    ),
    "cinic10": Source(
        270_000, (3, 32, 32), 10, 688,
        terms="CC BY 4.0; its images come from CIFAR-10 and ImageNet",
        citation="L. Darlow, E. Crowley, A. Antoniou, A. Storkey, CINIC-10 is not ImageNet or CIFAR-10, "
        "arXiv:1810.03505, 2018",
        files=_file(
            "md5:6ee4d0c996905fe93221de577967a372",
            "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
            "https://datashare.is.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
            "https://datashare.ed.ac.uk/server/api/core/bitstreams/e8e186cc-2688-48f1-aa5a-3fda1a43f8b6/content",
        ),
        read=pictures.read_cinic,
    ),
    "tiny_imagenet": Source(
        110_000, (3, 64, 64), 200, 248,
        terms="ImageNet's: non-commercial research and education",
        citation="Y. Le, X. Yang, Tiny ImageNet Visual Recognition Challenge, CS 231N course report, 2015",
        files=_file("md5:90528d7ca1a48142e341f4ef8d21d0de", "http://cs231n.stanford.edu/tiny-imagenet-200.zip"),
        read=pictures.read_tiny_imagenet,
    ),
    "domainnet": Source(
        10_200, (3, 64, 64), 20, 18_500,  # pFedSim prints 36,549 images: 20 whole classes rather than 30 % of them
        terms="fair use: non-commercial research and education",
        citation="X. Peng et al., Moment Matching for Multi-Source Domain Adaptation, ICCV 2019 (cleaned version)",
        files=_domainnet_files(),
        read=functools.partial(pictures.read_domainnet, domains=tuple(DOMAINS), classes=20, share=0.3, size=64, seed=0),
        exact=False,
    ),
    "pacs": Source(
        9_991, (3, 64, 64), 7, 191,
        terms="no licence stated; a benchmark of research",
        citation="D. Li, Y. Yang, Y.-Z. Song, T. Hospedales, Deeper, Broader and Artier Domain Generalization, ICCV "
        "2017",
        files=_file("sha256:4fc041ee92eec6043fe6e2859e8bdd138e5f958bc621afd153879812cbe65ff5", PACS_URL),
        read=functools.partial(pictures.read_domains, images=PACS, classes=PACS_CLASSES, size=64),
        by_hand="or instead PACS.zip, an archive of the images in folders DOMAIN/CLASS, such as DomainBed's",
        instead=RemoteFile("PACS.zip"),
    ),
}  # fmt: skip
