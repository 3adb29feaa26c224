"""Layouts are recognised, and classes are numbered as torchvision numbers them."""

from __future__ import annotations

from pathlib import Path

import pytest
from image_trees import WNIDS, class_folders, fill, kaggle_tree

from zerocopy_data.errors import SourceError
from zerocopy_data.pack.sources import find_source


def labels_of(split: object) -> list[int]:
    return split.labels.tolist()  # type: ignore[attr-defined, no-any-return]


def test_class_folders_are_one_dataset(tmp_path: Path) -> None:
    (split,) = find_source(class_folders(tmp_path / "s")).splits
    assert split.name == ""
    assert split.classes == ("ant", "bee")
    assert split.keys == ["ant/0.jpg", "ant/1.jpg", "ant/2.jpg", "bee/0.jpg", "bee/1.jpg", "bee/2.jpg"]
    assert labels_of(split) == [0, 0, 0, 1, 1, 1]
    assert split.sizes.tolist() == [(tmp_path / "s" / key).stat().st_size for key in split.keys]


def test_order_and_labels_equal_torchvisions_image_folder(tmp_path: Path) -> None:
    folder_module = pytest.importorskip("torchvision.datasets.folder")
    names = [
        "b/2.jpg",
        "b/10.JPG",
        "b/1.jpeg",
        "B/z.png",
        "a b/x.webp",
        "a-b/x.TIFF",
        "a/deep/er/1.jpg",
        "a/deep-er/2.bmp",
        "a/deep/0.pgm",
        "a/z.ppm",
        "é/ü.jpg",
        ".hidden/x.jpg",
        "b/.dot.jpg",
        "10/x.tif",
        "9/x.jpg",
    ]
    fill(tmp_path / "s", [*names, "b/notes.txt", "a/deep/list.csv"])
    fill(tmp_path / "linked", ["more/1.jpg"])
    (tmp_path / "s" / "b" / "link").symlink_to(tmp_path / "linked" / "more")
    (tmp_path / "s" / "c").symlink_to(tmp_path / "linked")
    dataset = folder_module.ImageFolder(str(tmp_path / "s"))
    (split,) = find_source(tmp_path / "s").splits
    assert list(split.classes) == dataset.classes
    expected = [(str(Path(path).relative_to(tmp_path / "s")), label) for path, label in dataset.samples]
    assert list(zip(split.keys, labels_of(split), strict=True)) == expected
    assert len(expected) == len(names) + 2


def test_splits_share_the_classes_of_train(tmp_path: Path) -> None:
    class_folders(tmp_path / "train", ("ant", "bee", "cat"))
    class_folders(tmp_path / "val", ("bee", "cat"), each=1)
    class_folders(tmp_path / "test", ("cat",), each=1)
    source = find_source(tmp_path)
    assert [split.name for split in source.splits] == ["train", "val", "test"]
    assert all(split.classes == ("ant", "bee", "cat") for split in source.splits)
    assert labels_of(source.splits[1]) == [1, 2]
    assert labels_of(source.splits[2]) == [2]
    assert source.splits[1].keys[0] == "bee/0.jpg"


def test_a_class_that_train_lacks_is_named(tmp_path: Path) -> None:
    class_folders(tmp_path / "train", ("ant", "bee"))
    class_folders(tmp_path / "val", ("bee", "yak"))
    with pytest.raises(SourceError, match="yak"):
        find_source(tmp_path)


def test_a_class_called_train_is_a_class(tmp_path: Path) -> None:
    (split,) = find_source(class_folders(tmp_path / "s", ("car", "plane", "train"))).splits
    assert split.classes == ("car", "plane", "train")


def test_other_folders_beside_the_splits_are_no_classes(tmp_path: Path) -> None:
    class_folders(tmp_path / "train")
    class_folders(tmp_path / "val", each=1)
    fill(tmp_path / "annotations", ["preview.jpg"])
    assert [split.name for split in find_source(tmp_path).splits] == ["train", "val"]


def test_a_train_folder_without_classes_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "train", ["a.jpg"])
    class_folders(tmp_path / "val")
    with pytest.raises(SourceError, match="no class folders"):
        find_source(tmp_path)


def test_a_flat_test_folder_has_no_labels(tmp_path: Path) -> None:
    class_folders(tmp_path / "train")
    fill(tmp_path / "test", ["b.jpg", "a.jpg"])
    test = find_source(tmp_path).splits[1]
    assert (test.name, test.labels, test.classes) == ("test", None, None)
    assert test.keys == ["a.jpg", "b.jpg"]


def test_a_flat_val_folder_without_labels_says_what_to_do(tmp_path: Path) -> None:
    class_folders(tmp_path / "train", WNIDS)
    fill(tmp_path / "val", ["ILSVRC2012_val_00000001.JPEG"])
    with pytest.raises(SourceError, match=r"LOC_val_solution\.csv"):
        find_source(tmp_path)


def test_imagenet_with_a_sorted_val(tmp_path: Path) -> None:
    class_folders(tmp_path / "train", WNIDS)
    class_folders(tmp_path / "val", WNIDS, each=1)
    source = find_source(tmp_path)
    assert source.kind == "imagenet"
    assert labels_of(source.splits[1]) == [0, 1, 2]


@pytest.mark.parametrize("where", [".", "val"])
def test_imagenet_with_a_flat_val_and_the_solution_beside_it(tmp_path: Path, where: str) -> None:
    images = kaggle_tree(tmp_path / "kaggle")
    images.rename(tmp_path / "plain")
    solution = (tmp_path / "kaggle" / "LOC_val_solution.csv").read_text()
    (tmp_path / "plain" / where / "LOC_val_solution.csv").write_text(solution)
    source = find_source(tmp_path / "plain")
    assert source.kind == "imagenet"
    assert labels_of(source.splits[1]) == [1, 2, 0, 1]


@pytest.mark.parametrize("below", [".", "ILSVRC", "ILSVRC/Data/CLS-LOC"])
def test_the_kaggle_tree_given_at_any_of_its_levels(tmp_path: Path, below: str) -> None:
    kaggle_tree(tmp_path / "k")
    source = find_source(tmp_path / "k" / below)
    assert source.kind == "imagenet (kaggle)"
    train, val, test = source.splits
    assert train.classes == WNIDS
    assert val.keys[0] == "ILSVRC2012_val_00000001.JPEG"
    assert labels_of(val) == [1, 2, 0, 1]
    assert test.labels is None


def test_a_solution_that_lacks_an_image_is_refused(tmp_path: Path) -> None:
    kaggle_tree(tmp_path, val=4)
    path = tmp_path / "LOC_val_solution.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    with pytest.raises(SourceError, match="ILSVRC2012_val_00000001"):
        find_source(tmp_path)


def test_a_solution_with_an_unknown_class_is_refused(tmp_path: Path) -> None:
    kaggle_tree(tmp_path)
    path = tmp_path / "LOC_val_solution.csv"
    path.write_text(path.read_text().replace(WNIDS[1], "n99999999"))
    with pytest.raises(SourceError, match="n99999999"):
        find_source(tmp_path)


def test_a_solution_that_is_another_file_is_refused(tmp_path: Path) -> None:
    kaggle_tree(tmp_path)
    (tmp_path / "LOC_val_solution.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SourceError, match="line 2"):
        find_source(tmp_path)


def devkit(root: Path) -> Path:
    class_folders(root / "train", WNIDS)
    fill(root / "val", [f"ILSVRC2012_val_{number:08d}.JPEG" for number in (1, 2, 3)])
    data = root / "ILSVRC2012_devkit_t12" / "data"
    data.mkdir(parents=True)
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n3\n2\n")
    return data


def test_the_development_kits_numbers_are_not_taken_for_folder_order(tmp_path: Path) -> None:
    devkit(tmp_path)
    with pytest.raises(SourceError, match=r"meta\.mat"):
        find_source(tmp_path)


def test_the_development_kits_numbers_with_their_table(tmp_path: Path) -> None:
    data = devkit(tmp_path)
    (data / "map_clsloc.txt").write_text(f"{WNIDS[2]} 1 kit_fox\n{WNIDS[0]} 2 tench\n{WNIDS[1]} 3 shark\n")
    assert labels_of(find_source(tmp_path).splits[1]) == [2, 1, 0]


def test_the_development_kits_numbers_with_its_matlab_table(tmp_path: Path) -> None:
    io = pytest.importorskip("scipy.io")
    np = pytest.importorskip("numpy")
    data = devkit(tmp_path)
    synsets = np.array(
        [(1, WNIDS[2], "kit fox"), (2, WNIDS[0], "tench"), (3, WNIDS[1], "shark")],
        dtype=[("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")],
    )
    io.savemat(data / "meta.mat", {"synsets": synsets})
    assert labels_of(find_source(tmp_path).splits[1]) == [2, 1, 0]


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nothing to pack"):
        find_source(tmp_path)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        find_source(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(SourceError, match="is a file"):
        find_source(tmp_path / "file")


def test_images_without_class_folders_are_refused(tmp_path: Path) -> None:
    fill(tmp_path, ["a.jpg", "b.jpg"])
    with pytest.raises(SourceError, match="2 images but no class folders"):
        find_source(tmp_path)


def test_an_empty_class_folder_is_named(tmp_path: Path) -> None:
    class_folders(tmp_path)
    (tmp_path / "bat").mkdir()
    (tmp_path / "bat" / "notes.txt").write_text("no image")
    with pytest.raises(SourceError, match="without an image: bat"):
        find_source(tmp_path)


@pytest.mark.parametrize("name", ["train", "val", "test"])
def test_an_empty_split_is_named(tmp_path: Path, name: str) -> None:
    class_folders(tmp_path / "train")
    if name == "train":
        class_folders(tmp_path / "val")
        for path in sorted((tmp_path / "train").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    else:
        (tmp_path / name).mkdir()
    with pytest.raises(SourceError, match=f"{name} is empty"):
        find_source(tmp_path)
