"""Discovery finds plugins and packs as data, and reports whatever it cannot use."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import json
import re
import sys
import zipfile
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import importlib_metadata
import pytest

from cartridge_core._finders import finders
from cartridge_core.discovery import Discovered, discover

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from importlib.machinery import ModuleSpec

    from cartridge_core.reports import DiscoveryIssue

GROUP = "cartridge_core.plugins"
MUST_NOT_RUN = "raise SystemExit('discovery imported this')\n"
CAP = 'cap:count-letters;in="media:enc=utf-8";out="media:count;integer;numeric"'


def a_descriptor(cartridge_id: str, **attributes: object) -> dict[str, object]:
    """Give a small valid descriptor; attributes that are None are left out."""
    cap = {
        "urn": CAP,
        "title": "Letters",
        "aliases": ["letters"],
        "args": [
            {
                "name": "text",
                "media_urn": "media:enc=utf-8",
                "required": True,
                "sources": [{"stdin": "media:enc=utf-8"}],
                "arg_description": "The text.",
            },
            {
                "name": "model_spec",
                "media_urn": "media:enc=utf-8;model-spec",
                "required": False,
                "sources": [{"cli_flag": "--model-spec"}],
                "default_value": "hf:a/b",
                "arg_description": "The model.",
                "metadata": {"pack": True},
            },
            {
                "name": "limit",
                "media_urn": "media:integer;limit;numeric",
                "required": False,
                "sources": [{"cli_flag": "--limit"}],
                "default_value": 10,
                "arg_description": "The most to count.",
                "metadata": {"schema": {"type": "integer"}},
            },
        ],
        "outputs": [
            {
                "media_urn": "media:count;integer;numeric",
                "name": "count",
                "output_description": "How many.",
            }
        ],
    }
    given = {"abi": "0.1", "hooks": 1, "caps": [cap], **attributes}
    return {
        "spec_version": "0.3",
        "id": cartridge_id,
        "version": "1.2.3",
        "family": "letters",
        "modality": "text",
        "task": "counting",
        "io": {"mode": "batch", "input": {"dtype": "utf8"}, "output": {"dtype": "int64"}},
        "target": {"hardware": "any", "abi": "any"},
        "performance": {"measured_on": "unmeasured"},
        "execution_mode": "native",
        "license": "MIT",
        "attributes": {name: value for name, value in given.items() if value is not None},
    }


class Site:
    """A folder of sys.path, to be filled with fake distributions."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder

    def install(
        self,
        name: str,
        entry_points: str | bytes | None = None,
        *,
        version: str = "1.0",
        metadata: str | None = None,
    ) -> Path:
        """Add a distribution's metadata folder."""
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nAbout it.\n"
        (info / "METADATA").write_bytes((text if metadata is None else metadata).encode())
        if entry_points is not None:
            data = entry_points if isinstance(entry_points, bytes) else entry_points.encode()
            (info / "entry_points.txt").write_bytes(data)
        return info

    def module(
        self, dotted: str, *descriptors: Mapping[str, object], source: str = MUST_NOT_RUN
    ) -> Path:
        """Add a module in its packages, and descriptors beside it; gives their folder."""
        package = self.folder
        for part in dotted.split(".")[:-1]:
            package /= part
            package.mkdir(exist_ok=True)
            (package / "__init__.py").write_text(source)
        (package / f"{dotted.rpartition('.')[2]}.py").write_text(source)
        folder = package / "descriptors"
        folder.mkdir(exist_ok=True)
        for descriptor in descriptors:
            (folder / f"{descriptor['id']}.json").write_text(json.dumps(descriptor))
        return folder

    def plugin(
        self,
        name: str,
        *descriptors: Mapping[str, object],
        distribution: str | None = None,
        version: str = "1.0",
        source: str = MUST_NOT_RUN,
    ) -> Path:
        """Install a plugin with descriptors, one by default; gives their folder."""
        distribution = distribution or f"cartridge-{name}"
        module = f"{distribution.replace('-', '_')}.plugin"
        self.install(distribution, f"[{GROUP}]\n{name} = {module}\n", version=version)
        given = descriptors or (a_descriptor(f"{name}-letters"),)
        return self.module(module, *given, source=source)

    def discover(self, **arguments: object) -> Discovered:
        """Discover what is in this folder alone."""
        return discover(path=[str(self.folder)], **arguments)  # type: ignore[arg-type]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


def ids(discovered: Discovered) -> list[str]:
    return [offer.id for offer in discovered.offers]


def only_issue(discovered: Discovered) -> DiscoveryIssue:
    assert len(discovered.issues) == 1, "\n".join(map(str, discovered.issues))
    return discovered.issues[0]


def test_a_plugin_is_found_with_its_descriptors(site: Site) -> None:
    """Each `*.json` in `descriptors` beside the module is an offer of the plugin."""
    site.plugin("abc", a_descriptor("abc-two"), a_descriptor("abc-one"), version="2.5")
    discovered = site.discover()
    assert [(offer.plugin, offer.id, offer.pack) for offer in discovered.offers] == [
        ("abc", "abc-one", None),
        ("abc", "abc-two", None),
    ]
    source = discovered.plugins["abc"]
    assert (source.name, source.distribution, source.version, source.module) == (
        "abc",
        "cartridge-abc",
        "2.5",
        "cartridge_abc.plugin",
    )
    assert discovered.issues == ()


def test_nothing_installed_is_nothing_found(site: Site) -> None:
    """An empty environment gives no offers and no issues."""
    assert site.discover() == Discovered((), {}, issues=())


def test_sys_path_is_searched_when_no_path_is_given(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a path, discovery looks where an import would."""
    site.plugin("on-sys-path")
    monkeypatch.syspath_prepend(str(site.folder))
    assert "on-sys-path-letters" in ids(discover())


def test_discovery_imports_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules and packages that end the process when imported are found all the same."""
    site.plugin("abc")
    site.install("nested", f"[{GROUP}]\nnested = top_nested.inner.plugin\n")
    site.module("top_nested.inner.plugin", a_descriptor("nested-letters"))
    monkeypatch.syspath_prepend(str(site.folder))
    before = set(sys.modules)
    assert {"abc-letters", "nested-letters"} <= set(ids(discover()))
    assert not {"cartridge_abc", "top_nested"} & (set(sys.modules) - before)


def test_a03_a_plugin_that_cannot_be_imported_hides_no_other(site: Site) -> None:
    """All three are found; what the second one's module imports is not discovery's to know."""
    site.plugin("first")
    site.plugin("second", source="import no_such_native_lib\n")
    site.plugin("third")
    discovered = site.discover()
    assert ids(discovered) == ["first-letters", "second-letters", "third-letters"]
    assert list(discovered.plugins) == ["first", "second", "third"]
    assert discovered.issues == ()


def test_load_imports_the_module_and_gives_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """`load` is the one thing that imports a plugin."""
    site.plugin("loadable", source="answer = 42\n")
    monkeypatch.syspath_prepend(str(site.folder))
    module = discover().plugins["loadable"].load()
    assert isinstance(module, ModuleType)
    assert module.answer == 42
    assert module.__name__ == "cartridge_loadable.plugin"


def test_error_load_lets_through_what_the_module_raises(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module's own exception comes out of `load` as it is."""
    site.plugin("unloadable", source="import no_such_native_lib\n")
    monkeypatch.syspath_prepend(str(site.folder))
    source = discover().plugins["unloadable"]
    with pytest.raises(ModuleNotFoundError, match="no_such_native_lib"):
        source.load()


@pytest.mark.parametrize("module", ["deep.er.plugin", "deep.er.and_.deeper"])
def test_descriptors_stand_beside_a_nested_module(site: Site, module: str) -> None:
    """A dotted module's descriptors are looked for in its own package's folder."""
    site.install("deep", f"[{GROUP}]\ndeep = {module}\n")
    site.module(module, a_descriptor("deep-letters"))
    assert ids(site.discover()) == ["deep-letters"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["with-first", "with-last"])
def test_a_namespace_package_is_searched_in_all_its_places(
    tmp_path: Path, order: tuple[int, int]
) -> None:
    """Of a package's several folders, the one that holds the module counts."""
    sites = [Site(tmp_path / "a"), Site(tmp_path / "b")]
    for site, name in zip(sites, ("one", "two"), strict=True):
        site.install(f"spaced-{name}", f"[{GROUP}]\n{name} = spaced.{name}\n")
        (site.folder / "spaced" / "descriptors").mkdir(parents=True)
        (site.folder / "spaced" / f"{name}.py").write_text(MUST_NOT_RUN)
        text = json.dumps(a_descriptor(f"{name}-letters"))
        (site.folder / "spaced" / "descriptors" / "it.json").write_text(text)
    discovered = discover(path=[str(sites[number].folder) for number in order])
    assert ids(discovered) == ["one-letters", "two-letters"]
    assert discovered.issues == ()


class EditableFinder(MetaPathFinder):
    """Finds one package somewhere else, as an editable install does."""

    def __init__(self, package: str, folder: Path) -> None:
        self.package, self.folder = package, folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != self.package:
            return None
        return importlib.util.spec_from_file_location(
            fullname,
            self.folder / fullname / "__init__.py",
            submodule_search_locations=[str(self.folder / fullname)],
        )


def test_a_package_behind_an_editable_finder_is_found(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package may stand outside sys.path, where a finder of sys.meta_path says."""
    sources = Site(tmp_path / "sources")
    sources.module("cartridge_edited.plugin", a_descriptor("edited-letters"))
    site.install("cartridge-edited", f"[{GROUP}]\nedited = cartridge_edited.plugin\n")
    monkeypatch.syspath_prepend(str(site.folder))
    finder = EditableFinder("cartridge_edited", sources.folder)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, finder])
    assert "edited-letters" in ids(discover())


def test_the_first_of_one_distribution_on_the_path_wins(tmp_path: Path) -> None:
    """A distribution that an earlier folder has too is passed over, as an import would."""
    first, second = Site(tmp_path / "a"), Site(tmp_path / "b")
    first.plugin("abc", version="2.0")
    second.plugin("abc", version="1.0")
    discovered = discover(path=[str(first.folder), str(second.folder), str(first.folder)])
    assert discovered.plugins["abc"].version == "2.0"
    assert discovered.issues == ()


def test_a_distribution_without_the_plugin_hides_a_later_one_with_it(tmp_path: Path) -> None:
    """The first of a distribution's versions counts, also where it is no plugin yet."""
    first, second = Site(tmp_path / "a"), Site(tmp_path / "b")
    first.install("Cartridge.ABC", version="0.9")
    second.plugin("abc")
    discovered = discover(path=[str(first.folder), str(second.folder)])
    assert discovered == Discovered((), {}, issues=())


def test_two_versions_in_one_folder_are_one_plugin_and_an_issue(site: Site) -> None:
    """The later version counts, whatever the folder's order, and the leftover is reported."""
    site.plugin("abc", version="1.10")
    site.install("cartridge-abc", f"[{GROUP}]\nabc = cartridge_abc.gone\n", version="1.9")
    discovered = site.discover()
    assert discovered.plugins["abc"].module == "cartridge_abc.plugin"
    assert ids(discovered) == ["abc-letters"]
    issue = only_issue(discovered)
    assert (issue.distribution, issue.version) == ("cartridge-abc", "1.10")
    assert "more than one version of it (1.9, 1.10)" in issue.why
    assert issue.fix == "pip install --force-reinstall cartridge-abc"


def test_a_legacy_egg_info_folder_counts_too(site: Site) -> None:
    """Metadata in an `.egg-info` folder is read like that of a wheel."""
    site.module("old.plugin", a_descriptor("old-letters"))
    info = site.folder / "old.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Metadata-Version: 1.1\nName: old\nVersion: 3\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nold = old.plugin\n")
    assert site.discover().plugins["old"].version == "3"


MANY_FIELDS = "".join(f"Classifier: number {number}\n" for number in range(1000))

HEADERS = [
    pytest.param(f"{MANY_FIELDS}Name: cartridge-abc\nVersion: 2\n\n", "2", id="long-before-name"),
    pytest.param(f"Name: cartridge-abc\n{MANY_FIELDS}Version: 2\n\n", "2", id="long-after-name"),
    pytest.param("Name: cartridge-abc\nVersion: 2", "2", id="no-end-of-line"),
    pytest.param("Name: cartridge-abc\r\nVersion: 2\r\n\r\nVersion: 3\r\n", "2", id="crlf"),
    pytest.param("name:cartridge-abc\nversion:\t2 \n", "2", id="lower-case"),
    pytest.param("Name: cartridge-abc\n\nVersion: in the description\n", None, id="no-version"),
]


@pytest.mark.parametrize(("header", "version"), HEADERS)
def test_name_and_version_are_read_from_the_header(
    site: Site, header: str, version: str | None
) -> None:
    """Both are found wherever they stand in the header, and nowhere below it."""
    site.install("cartridge-abc", f"[{GROUP}]\nabc = cartridge_abc.plugin\n", metadata=header)
    site.module("cartridge_abc.plugin", a_descriptor("abc-letters"))
    source = site.discover().plugins["abc"]
    assert (source.distribution, source.version) == ("cartridge-abc", version)


def fill_empty_nameless_dist_info(folder: Path) -> Path:
    (folder / ".dist-info").mkdir()
    return folder / ".dist-info"


def fill_empty_nameless_egg_info(folder: Path) -> Path:
    (folder / ".egg-info").mkdir()
    return folder / ".egg-info"


def fill_version_without_name(folder: Path) -> Path:
    (folder / "-1.0.dist-info").mkdir()
    return folder / "-1.0.dist-info"


def fill_empty_named_dist_info(folder: Path) -> Path:
    (folder / "gone-1.0.dist-info").mkdir()
    return folder / "gone-1.0.dist-info"


def fill_metadata_without_name(folder: Path) -> Path:
    metadata = "Metadata-Version: 2.1\nVersion: 1.0\n\nName: in-the-description\n"
    return Site(folder).install("unnamed", metadata=metadata)


def fill_metadata_with_empty_name(folder: Path) -> Path:
    return Site(folder).install("unnamed", metadata="Metadata-Version: 2.1\nName:  \nVersion: 1\n")


def fill_undecodable_metadata(folder: Path) -> Path:
    info = Site(folder).install("garbled")
    (info / "METADATA").write_bytes(b"Metadata-Version: 2.1\nName: garbled\xff\nVersion: 1.0\n")
    return info


def fill_metadata_is_a_folder(folder: Path) -> Path:
    info = folder / "odd-1.0.dist-info"
    (info / "METADATA").mkdir(parents=True)
    return info


def fill_dist_info_is_a_file(folder: Path) -> Path:
    (folder / "afile-1.0.dist-info").write_text("")
    return folder / "afile-1.0.dist-info"


def fill_leftover_of_pip(folder: Path) -> Path:
    return Site(folder).install("~bc", f"[{GROUP}]\nabc = cartridge_abc.plugin\n")


NAMELESS = [
    pytest.param(
        fill_empty_nameless_dist_info,
        "starts with '', .* no distribution's name",
        id="a04-dist-info",
    ),
    pytest.param(
        fill_empty_nameless_egg_info, "starts with '', .* no distribution's name", id="a04-egg-info"
    ),
    pytest.param(
        fill_version_without_name,
        "starts with '', .* no distribution's name",
        id="a04-only-version",
    ),
    pytest.param(fill_empty_named_dist_info, "missing or has no valid Name", id="a04-no-metadata"),
    pytest.param(fill_metadata_without_name, "has no valid Name", id="a04-metadata-without-name"),
    pytest.param(fill_metadata_with_empty_name, "no valid Name", id="a04-metadata-with-empty-name"),
    pytest.param(fill_undecodable_metadata, "not UTF-8: byte 0xff", id="a04-undecodable-metadata"),
    pytest.param(fill_metadata_is_a_folder, "IsADirectoryError", id="a04-metadata-is-a-folder"),
    pytest.param(fill_dist_info_is_a_file, "missing or has no valid", id="a04-dist-info-is-a-file"),
    pytest.param(
        fill_leftover_of_pip,
        "starts with '~bc', .* no distribution's name",
        id="a04-leftover-of-pip",
    ),
]


@pytest.mark.parametrize(("fill", "why"), NAMELESS)
def test_error_metadata_without_a_name_is_reported_with_its_path(
    site: Site, fill: Callable[[Path], Path], why: str
) -> None:
    """One issue names the path; every other plugin is found."""
    site.plugin("abc")
    place = fill(site.folder)
    discovered = site.discover()
    assert ids(discovered) == ["abc-letters"]
    issue = only_issue(discovered)
    assert (issue.distribution, issue.version, issue.what) == (
        str(place),
        None,
        "distribution metadata",
    )
    assert re.search(why, issue.why)
    assert "Delete it, or reinstall" in issue.fix


def test_every_nameless_folder_is_reported(tmp_path: Path) -> None:
    """Each broken folder has its own issue, wherever on the path it lies."""
    first, second = Site(tmp_path / "a"), Site(tmp_path / "b")
    places = {
        str(fill_empty_nameless_dist_info(first.folder)),
        str(fill_empty_nameless_egg_info(first.folder)),
        str(fill_empty_nameless_dist_info(second.folder)),
    }
    discovered = discover(path=[str(first.folder), str(second.folder)])
    assert {issue.distribution for issue in discovered.issues} == places


def test_error_entry_points_that_cannot_be_read_are_reported(site: Site) -> None:
    """An unreadable `entry_points.txt` is named with its distribution."""
    site.plugin("abc")
    info = site.install("shut", version="7")
    (info / "entry_points.txt").mkdir()
    discovered = site.discover()
    assert ids(discovered) == ["abc-letters"]
    issue = only_issue(discovered)
    assert (issue.distribution, issue.version, issue.what) == ("shut", "7", "entry_points.txt")
    assert "IsADirectoryError" in issue.why


def test_error_entry_points_in_another_encoding_are_reported(site: Site) -> None:
    """An `entry_points.txt` that is not UTF-8 is named with the byte."""
    site.install("latin", b"[console_scripts]\ncaf\xe9 = a:b\n")
    issue = only_issue(site.discover())
    assert (issue.distribution, issue.what) == ("latin", "entry_points.txt")
    assert issue.why == "it is not UTF-8: byte 0xe9 at 21"


BAD_LINES = [
    pytest.param(
        "[console_scripts]\nno equals here\n", 2, "'no equals here' is no", id="no-equals"
    ),
    pytest.param("[a]\n= a.b\n", 2, "'= a.b' is no 'name = value'", id="no-name"),
    pytest.param("[a]\n\n# b\nname =\n", 4, "'name =' is no 'name = value'", id="no-value"),
    pytest.param("early = a.b\n[a]\n", 1, "'early = a.b' stands before any", id="before-a-group"),
    pytest.param("[a]\nx = y\n[unclosed\n", 3, "'[unclosed' is no", id="unclosed-group"),
]


@pytest.mark.parametrize(("text", "number", "why"), BAD_LINES)
def test_error_a_bad_line_in_any_distribution_is_reported(
    site: Site, text: str, number: int, why: str
) -> None:
    """A bad line is named with its text, also where the distribution is no plugin."""
    site.plugin("abc")
    site.install("stranger", text, version="4.0")
    discovered = site.discover()
    assert ids(discovered) == ["abc-letters"]
    issue = only_issue(discovered)
    assert (issue.distribution, issue.version) == ("stranger", "4.0")
    assert issue.what == f"entry_points.txt, line {number}"
    assert why in issue.why
    assert "Reinstall stranger" in issue.fix


def test_good_lines_beside_a_bad_one_still_count(site: Site) -> None:
    """A plugin survives a bad line in its own file."""
    site.install("mixed", f"[{GROUP}]\nbroken\nmixed = mixed.plugin\n[x]\nalso broken\n")
    site.module("mixed.plugin", a_descriptor("mixed-letters"))
    discovered = site.discover()
    assert ids(discovered) == ["mixed-letters"]
    assert [issue.what for issue in discovered.issues] == [
        "entry_points.txt, line 2",
        "entry_points.txt, line 5",
    ]


def test_comments_and_other_groups_are_no_issue(site: Site) -> None:
    """What packaging tools write for others is passed over."""
    text = "# comment\n; comment\n\n[console_scripts]\na = b.c:d [e]\n\n[x.y]\nf=g\n"
    site.install("stranger", text)
    assert site.discover() == Discovered((), {}, issues=())


VALUES = [
    pytest.param(
        "abc", "cartridge_abc.plugin:plugin", "names the attribute 'plugin'", id="attribute"
    ),
    pytest.param(
        "abc", "cartridge_abc.plugin :Plugin.x", "attribute 'Plugin.x'", id="attribute-path"
    ),
    pytest.param("abc", "cartridge_abc.plugin:", "names the attribute ''", id="empty-attribute"),
    pytest.param("abc", "cartridge_abc.plugin [cuda]", "asks for extras", id="extras"),
    pytest.param("abc", "cartridge_abc", "not the dotted name of a module", id="no-package"),
    pytest.param("abc", "cartridge-abc.plugin", "not the dotted name of a module", id="hyphen"),
    pytest.param("abc", "..plugin", "not the dotted name of a module", id="relative"),
    pytest.param("abc", "cartridge_abc.plugin, x", "not the dotted name", id="two-modules"),
    pytest.param("Abc", "cartridge_abc.plugin", "'Abc' is no plugin name", id="upper-case-name"),
    pytest.param("a_b", "cartridge_abc.plugin", "'a_b' is no plugin name", id="underscored-name"),
    pytest.param("a--b", "cartridge_abc.plugin", "'a--b' is no plugin name", id="two-hyphens"),
    pytest.param("a b", "cartridge_abc.plugin", "'a b' is no plugin name", id="name-with-a-space"),
]


@pytest.mark.parametrize(("name", "value", "why"), VALUES)
def test_error_an_entry_point_that_names_no_plugin_module_is_reported(
    site: Site, name: str, value: str, why: str
) -> None:
    """The issue quotes the entry point and shows how to write it."""
    site.module("cartridge_abc.plugin", a_descriptor("abc-letters"))
    site.install("cartridge-abc", f"[{GROUP}]\n{name} = {value}\ngood = cartridge_abc.plugin\n")
    discovered = site.discover()
    assert "good" in discovered.plugins
    assert name not in discovered.plugins
    issue = next(issue for issue in discovered.issues if issue.what == f"plugin {name}")
    assert (issue.distribution, issue.version, issue.plugin) == ("cartridge-abc", "1.0", name)
    assert why in issue.why
    assert re.search(r'like this: [a-z-]+ = "cartridge_[a-z_]+\.plugin"', issue.fix)


def test_error_a_missing_package_is_reported(site: Site) -> None:
    """A plugin whose package was deleted is named."""
    site.install("cartridge-abc", f"[{GROUP}]\nabc = cartridge_gone.plugin\n")
    discovered = site.discover()
    assert discovered.plugins == {}
    issue = only_issue(discovered)
    assert (issue.what, issue.plugin) == ("plugin abc", "abc")
    assert issue.why == "its package cartridge_gone cannot be found"


def test_error_a_package_that_cannot_be_looked_for_is_reported(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever looking for a package raises is an issue of that plugin alone."""
    site.install("cartridge-odd", f"[{GROUP}]\nodd = cartridge_odd.plugin\n")
    site.plugin("abc")
    monkeypatch.syspath_prepend(str(site.folder))
    monkeypatch.setitem(sys.modules, "cartridge_odd", ModuleType("cartridge_odd"))
    discovered = discover()
    assert "abc-letters" in ids(discovered)
    issue = next(issue for issue in discovered.issues if issue.plugin == "odd")
    assert issue.why == "ValueError: cartridge_odd.__spec__ is None"
    assert "Reinstall cartridge-odd" in issue.fix


def test_error_a_single_module_is_reported(site: Site) -> None:
    """A module that is one file has no folder for descriptors."""
    site.install("cartridge-abc", f"[{GROUP}]\nabc = single_file.plugin\n")
    (site.folder / "single_file.py").write_text(MUST_NOT_RUN)
    issue = only_issue(site.discover())
    assert "single_file is a single module" in issue.why
    assert "single_file.py" in issue.why


def test_error_a_package_without_descriptors_is_reported(site: Site) -> None:
    """The folder that is missing is named."""
    folder = site.plugin("abc")
    (folder / "abc-letters.json").unlink()
    folder.rmdir()
    issue = only_issue(site.discover())
    assert issue.what == "plugin abc"
    assert f"there is no folder {folder}" in issue.why


def test_error_a_descriptors_folder_without_json_is_reported(site: Site) -> None:
    """Files that are no `*.json` and hidden files are no descriptors."""
    folder = site.plugin("abc")
    (folder / "abc-letters.json").rename(folder / "._abc-letters.json")
    (folder / "README.md").write_text("Descriptors.")
    issue = only_issue(site.discover())
    assert issue.why == f"there is no *.json in {folder}"


def test_error_a_package_in_a_zip_archive_is_reported(tmp_path: Path) -> None:
    """A package that is no folder on disk is named, not passed over."""
    archive = tmp_path / "site.zip"
    with zipfile.ZipFile(archive, "w") as file:
        info = "cartridge_abc-1.0.dist-info"
        file.writestr(f"{info}/METADATA", "Name: cartridge-abc\nVersion: 1.0\n")
        file.writestr(f"{info}/entry_points.txt", f"[{GROUP}]\nabc = cartridge_abc.plugin\n")
        file.writestr("cartridge_abc/__init__.py", MUST_NOT_RUN)
    issue = only_issue(discover(path=[str(archive)]))
    assert (issue.distribution, issue.version, issue.plugin) == ("cartridge-abc", "1.0", "abc")
    assert "there is no folder" in issue.why


def write_json(descriptor: Mapping[str, object]) -> Callable[[Path], object]:
    return lambda file: file.write_text(json.dumps(descriptor))


def foreign(**changes: object) -> Callable[[Path], object]:
    """Write a descriptor of a future contract, with a key that today's rules refuse."""
    return write_json({**a_descriptor("abc-bad", **changes), "thing_of_the_future": 1})


INVALID = {**a_descriptor("abc-bad"), "io": {"mode": "steaming"}}

REFUSED = [
    pytest.param(lambda file: file.mkdir(), "it is no regular file", False, id="folder"),
    pytest.param(
        lambda file: file.symlink_to("gone"), "it cannot be read: No such", False, id="link"
    ),
    pytest.param(
        lambda file: file.write_text("{nonsense"), r"^\$: is not JSON", False, id="no-json"
    ),
    pytest.param(lambda file: file.write_text("[" * 99999), r"^\$", False, id="nested-too-deep"),
    pytest.param(
        lambda file: file.write_bytes(b'{"id": "\xff"}'), r"^\$.*UTF-8", False, id="latin-1"
    ),
    pytest.param(lambda file: file.write_text("[1]"), r"^\$: must be an object", False, id="array"),
    pytest.param(lambda file: file.write_text(""), r"^\$: is not JSON", False, id="empty"),
    pytest.param(write_json(INVALID), r"^\$\.io\.mode: ", True, id="invalid"),
    pytest.param(
        write_json(a_descriptor("abc-bad", abi=None)),
        "attributes.abi is missing",
        True,
        id="no-abi",
    ),
    pytest.param(
        write_json(a_descriptor("abc-bad", abi="1.0")),
        "abi is '1.0'.*ABI 0.x",
        True,
        id="other-abi",
    ),
    pytest.param(foreign(abi="10.2"), "abi is '10.2'.*ABI 0.x", True, id="future-abi"),
    pytest.param(
        write_json(a_descriptor("abc-bad", hooks=None)),
        "attributes.hooks is missing",
        True,
        id="no-hooks",
    ),
    pytest.param(
        write_json(a_descriptor("abc-bad", hooks=2)),
        "hooks is 2.*has hooks 1",
        True,
        id="other-hooks",
    ),
    pytest.param(foreign(hooks=3), "hooks is 3.*has hooks 1", True, id="future-hooks"),
    pytest.param(
        write_json(a_descriptor("other-bad")),
        "id other-bad does not start with abc-",
        True,
        id="prefix",
    ),
    pytest.param(
        write_json(a_descriptor("abc")),
        "id abc does not start with abc-",
        True,
        id="only-the-prefix",
    ),
]


@pytest.mark.parametrize(("write", "why", "has_caps"), REFUSED)
def test_error_a_refused_descriptor_is_reported_and_its_siblings_count(
    site: Site, write: Callable[[Path], object], why: str, has_caps: bool
) -> None:
    """One issue names the file, the cause and the caps that are lost; the others are offered."""
    folder = site.plugin("abc", a_descriptor("abc-good"), version="3.1")
    file = folder / "bad.json"
    write(file)
    discovered = site.discover()
    assert ids(discovered) == ["abc-good"]
    issue = only_issue(discovered)
    assert (issue.distribution, issue.version, issue.plugin) == ("cartridge-abc", "3.1", "abc")
    assert issue.what == f"descriptor {file}"
    assert re.search(why, issue.why)
    assert issue.fix
    assert bool(issue.caps) is has_caps
    assert all("count-letters" in cap for cap in issue.caps)


def test_a_plugin_keeps_what_its_refused_descriptors_say(site: Site) -> None:
    """All that can be read is there to be compared with what the plugin says once imported."""
    given = a_descriptor("abc-a"), a_descriptor("abc-b", hooks=2), a_descriptor("other")
    folder = site.plugin("abc", *given)
    (folder / "unreadable.json").write_text("{")
    discovered = site.discover()
    assert ids(discovered) == ["abc-a"]
    descriptors = discovered.plugins["abc"].descriptors
    assert [descriptor.id for descriptor in descriptors] == ["abc-a", "abc-b", "other"]


def test_a_changed_descriptor_is_read_again(site: Site) -> None:
    """A later discovery sees a file that was rewritten."""
    folder = site.plugin("abc", a_descriptor("abc-letters"))
    assert ids(site.discover()) == ["abc-letters"]
    (folder / "abc-letters.json").write_text(json.dumps(a_descriptor("abc-letters-of-old")))
    assert ids(site.discover()) == ["abc-letters-of-old"]


def claim(folder: Path, name: str, *distributions: str) -> list[Site]:
    """Install several distributions that claim one plugin name, each in a folder of its own."""
    sites = [Site(folder / distribution) for distribution in distributions]
    for site, distribution in zip(sites, distributions, strict=True):
        site.plugin(name, distribution=distribution)
    return sites


@pytest.mark.parametrize(
    "distributions",
    [
        pytest.param(("maker-a", "maker-b"), id="a25-two-distributions"),
        pytest.param(("maker-b", "maker-a"), id="a25-two-distributions-reversed"),
        pytest.param(("maker-c", "maker-a", "maker-b"), id="a25-three-distributions"),
    ],
)
def test_error_a_plugin_name_claimed_twice_is_refused_to_all(
    tmp_path: Path, distributions: tuple[str, ...]
) -> None:
    """Nobody gets the name, everybody is named, and the order on the path changes nothing."""
    sites = claim(tmp_path, "same", *distributions)
    discovered = discover(path=[str(site.folder) for site in sites])
    assert discovered.offers == ()
    assert discovered.plugins == {}
    assert [issue.distribution for issue in discovered.issues] == sorted(distributions)
    for issue in discovered.issues:
        assert (issue.what, issue.plugin) == ("plugin same", "same")
        for distribution in distributions:
            module = f"{distribution.replace('-', '_')}.plugin"
            assert f"{distribution} 1.0 ({module})" in issue.why
        assert issue.caps == (CAP,)
        assert "Uninstall all but one" in issue.fix
        assert "CARTRIDGE_PLUGINS=maker-a" in issue.fix


def test_error_a_claimed_name_needs_no_package_to_clash(site: Site) -> None:
    """Two entry points clash also where their modules are missing."""
    site.install("maker-a", f"[{GROUP}]\nsame = gone_a.plugin\n")
    site.install("maker-b", f"[{GROUP}]\nsame = gone_b.plugin\n")
    discovered = site.discover()
    assert [issue.distribution for issue in discovered.issues] == ["maker-a", "maker-b"]
    assert all("is claimed by maker-a" in issue.why for issue in discovered.issues)


def test_error_one_distribution_that_claims_a_name_twice_gets_it_not(site: Site) -> None:
    """A name on two lines of one file is refused, naming both modules."""
    site.install("maker-a", f"[{GROUP}]\nsame = one.plugin\nsame = two.plugin\n")
    issue = only_issue(site.discover())
    assert "maker-a 1.0 (one.plugin) and maker-a 1.0 (two.plugin)" in issue.why
    assert issue.fix == "Reinstall maker-a, or tell its authors."


def test_a_claimed_name_hides_no_other_plugin(tmp_path: Path) -> None:
    """A clash takes down those who clash and nobody else."""
    first, second = claim(tmp_path, "same", "maker-a", "maker-b")
    first.plugin("other")
    discovered = discover(path=[str(first.folder), str(second.folder)])
    assert ids(discovered) == ["other-letters"]


@pytest.mark.parametrize("allowed", [{"maker-b"}, {"Maker_B"}, {"same", "maker.b"}])
def test_allowing_a_distribution_decides_who_has_the_name(
    tmp_path: Path, allowed: Collection[str]
) -> None:
    """A name claimed twice is no clash where one claimant is allowed as a distribution."""
    sites = claim(tmp_path, "same", "maker-a", "maker-b", "maker-c")
    discovered = discover(path=[str(site.folder) for site in sites], allowed=allowed)
    assert discovered.plugins["same"].distribution == "maker-b"
    assert ids(discovered) == ["same-letters"]
    assert discovered.issues == ()


@pytest.mark.parametrize("allowed", [{"same"}, {"maker-a", "maker-b"}])
def test_error_allowing_both_claimants_decides_nothing(
    tmp_path: Path, allowed: Collection[str]
) -> None:
    """The name alone, or both distributions, leaves the clash."""
    sites = claim(tmp_path, "same", "maker-a", "maker-b")
    discovered = discover(path=[str(site.folder) for site in sites], allowed=allowed)
    assert discovered.offers == ()
    assert [issue.distribution for issue in discovered.issues] == ["maker-a", "maker-b"]


@pytest.mark.parametrize("allowed", [["one"], ["cartridge-one"], ["Cartridge.One", ""], [" one "]])
def test_only_what_is_allowed_is_found(site: Site, allowed: Collection[str]) -> None:
    """Plugins that are not allowed are left out, with whatever is wrong with them."""
    site.plugin("one")
    site.plugin("two")
    site.install("broken", f"[{GROUP}]\nbroken = gone.plugin\n")
    discovered = site.discover(allowed=allowed)
    assert list(discovered.plugins) == ["one"]
    assert ids(discovered) == ["one-letters"]
    assert discovered.issues == ()


def test_error_an_allowed_name_that_nothing_bears_is_reported(site: Site) -> None:
    """A misspelt name is reported with those there are."""
    site.plugin("one")
    discovered = site.discover(allowed=["one", "tow"])
    assert ids(discovered) == ["one-letters"]
    issue = only_issue(discovered)
    assert (issue.distribution, issue.what) == ("tow", "allowed name")
    assert "CARTRIDGE_PLUGINS; installed: cartridge-one and one" in issue.fix


def test_nothing_allowed_is_nothing_found(site: Site) -> None:
    """An empty list allows no plugin; None allows all."""
    site.plugin("one")
    assert site.discover(allowed=()) == Discovered((), {}, issues=())


def test_error_an_id_claimed_by_two_plugins_is_refused_to_both(tmp_path: Path) -> None:
    """a25-same-id: both plugins keep their other descriptors, and both are named."""
    first, second = Site(tmp_path / "a"), Site(tmp_path / "b")
    first.plugin("letters", a_descriptor("letters-fast-one"), a_descriptor("letters-two"))
    second.plugin("letters-fast", a_descriptor("letters-fast-one"), version="2.0")
    discovered = discover(path=[str(first.folder), str(second.folder)])
    assert ids(discovered) == ["letters-two"]
    assert list(discovered.plugins) == ["letters", "letters-fast"]
    assert {(issue.distribution, issue.plugin) for issue in discovered.issues} == {
        ("cartridge-letters", "letters"),
        ("cartridge-letters-fast", "letters-fast"),
    }
    for issue in discovered.issues:
        assert "its id is claimed by cartridge-letters 1.0 (" in issue.why
        assert "and cartridge-letters-fast 2.0 (" in issue.why
        assert issue.caps == (CAP,)
    reverse = discover(path=[str(second.folder), str(first.folder)])
    assert reverse == discovered


def test_error_an_id_in_two_files_of_one_plugin_is_refused(site: Site) -> None:
    """Both files are named."""
    folder = site.plugin("abc", a_descriptor("abc-letters"), a_descriptor("abc-more"))
    (folder / "copy.json").write_text(json.dumps(a_descriptor("abc-letters")))
    discovered = site.discover()
    assert ids(discovered) == ["abc-more"]
    assert len(discovered.issues) == 2
    assert all("copy.json" in issue.why for issue in discovered.issues)


def test_the_order_of_the_path_decides_nothing(tmp_path: Path) -> None:
    """Good, broken and clashing distributions give one result in every order."""
    sites = [Site(tmp_path / str(number)) for number in range(4)]
    sites[0].plugin("good")
    sites[0].plugin("same", distribution="maker-a")
    sites[1].plugin("same", distribution="maker-b")
    fill_empty_nameless_dist_info(sites[1].folder)
    sites[2].plugin("letters", a_descriptor("letters-fast-one"))
    sites[2].install("stranger", "oops\n")
    sites[3].plugin("letters-fast", a_descriptor("letters-fast-one"))
    sites[3].install("missing", f"[{GROUP}]\nmissing = gone.plugin\n")
    results = [
        discover(path=[str(site.folder) for site in order])
        for order in itertools.permutations(sites)
    ]
    assert ids(results[0]) == ["good-letters"]
    assert len(results[0].issues) == 7
    assert all(result == results[0] for result in results)
    assert all(list(result.plugins) == list(results[0].plugins) for result in results)


class RaisingFinder(MetaPathFinder):
    """Somebody's finder that cannot list distributions."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Find nothing."""

    def find_distributions(self, context: object) -> list[object]:
        raise RuntimeError("the index is locked")  # noqa: EM101, TRY003 -- a test's own


class ElsewhereFinder(MetaPathFinder):
    """Somebody's finder that lists what does not stand in the folder it is asked about."""

    def __init__(self, info: Path) -> None:
        self.info = info

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Find nothing."""

    def find_distributions(self, context: object) -> list[object]:
        return [importlib.metadata.PathDistribution(self.info)]


def test_what_somebodys_finder_lists_is_found(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finder of sys.meta_path may know distributions that stand in no folder of the path."""
    site.plugin("far")
    (info,) = site.folder.glob("*.dist-info")
    info = info.rename(tmp_path / f"elsewhere-{info.name}")
    assert ids(site.discover()) == []
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, ElsewhereFinder(info)])
    assert ids(site.discover()) == ["far-letters"]


@pytest.mark.parametrize("finder", [PathFinder, importlib_metadata.MetadataPathFinder()])
def test_a_folder_is_listed_as_the_usual_finders_list_it(
    finder: MetaPathFinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is installed here is found without asking a finder, and is the same."""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, finder])
    (short,) = finders()
    for folder in sys.path:
        listed = importlib_metadata.distributions(path=[folder])
        # Nothing public says where a distribution lies.
        places = {str(getattr(one, "_path", one)) for one in listed}
        assert {str(getattr(one, "_path", one)) for one in short(folder)} == places


@pytest.mark.parametrize("place", [0, 99], ids=["first-of-all", "last-of-all"])
def test_error_a_finder_that_raises_hides_no_plugin(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """A broken finder in sys.meta_path is reported; folders are searched all the same."""
    site.plugin("abc")
    finders = list(sys.meta_path)
    finders.insert(place, RaisingFinder())
    monkeypatch.setattr(sys, "meta_path", finders)
    discovered = site.discover()
    assert ids(discovered) == ["abc-letters"]
    issue = only_issue(discovered)
    assert issue.distribution == str(site.folder)
    assert "RuntimeError: the index is locked" in issue.why


def test_error_a_folder_that_cannot_be_searched_hides_no_other(site: Site) -> None:
    """An impossible entry of the path is named."""
    site.plugin("abc")
    discovered = discover(path=[str(site.folder), "no\0where"])
    assert ids(discovered) == ["abc-letters"]
    assert only_issue(discovered).distribution == "no\0where"


def test_entries_of_the_path_that_are_no_text_are_passed_over(site: Site) -> None:
    """As in an import, only strings count."""
    site.plugin("abc")
    path = [None, 7, Path("/"), str(site.folder / "gone"), str(site.folder)]
    discovered = discover(path=path)  # type: ignore[arg-type]
    assert ids(discovered) == ["abc-letters"]
    assert discovered.issues == ()


def a_pack(folder: Path, descriptor: Mapping[str, object], *roles: str) -> Path:
    """Write a pack: its descriptor, and a manifest with artifacts of these roles."""
    folder.mkdir(parents=True)
    (folder / "descriptor.json").write_text(json.dumps(descriptor))
    artifacts = [{"role": role, "path": f"artifacts/{role}/it"} for role in roles]
    (folder / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))
    return folder


def narrowed(cartridge_id: str, base: str, **changes: object) -> dict[str, object]:
    """Give a pack's descriptor: the base's, without a default of the pack argument."""
    descriptor = a_descriptor(cartridge_id, base=base, abi=None, hooks=None)
    args = the_cap(descriptor)["args"]
    assert isinstance(args, list)
    del args[1]["default_value"]
    return {**descriptor, **changes}


def the_cap(descriptor: Mapping[str, object]) -> dict[str, object]:
    attributes = descriptor["attributes"]
    assert isinstance(attributes, dict)
    cap: dict[str, object] = attributes["caps"][0]
    return cap


def test_a_pack_is_an_offer_of_its_base_s_plugin(site: Site, tmp_path: Path) -> None:
    """A pack that narrows a cartridge is opened by that cartridge's plugin."""
    site.plugin("abc")
    performance = {"measured_on": "this desk", "rtf": 0.5}
    pack = a_pack(tmp_path / "p", narrowed("my-pack", "abc-letters", performance=performance))
    discovered = site.discover(packs=[pack])
    assert [(offer.id, offer.plugin, offer.pack) for offer in discovered.offers] == [
        ("abc-letters", "abc", None),
        ("my-pack", "abc", pack),
    ]
    assert discovered.issues == ()


def test_the_subfolders_of_a_folder_are_packs(site: Site, tmp_path: Path) -> None:
    """Direct subfolders with a descriptor are packs; others and hidden ones are passed over."""
    site.plugin("abc")
    folder = tmp_path / "packs"
    for name in ("one", "two", ".cache", "deep/er"):
        a_pack(folder / name, narrowed(f"pack-{Path(name).stem.strip('.')}", "abc-letters"))
    (folder / "notes.txt").write_text("Packs.")
    discovered = site.discover(packs=[str(folder)])
    assert ids(discovered) == ["abc-letters", "pack-one", "pack-two"]
    assert discovered.issues == ()


def test_a_folder_of_packs_may_be_in_the_home_folder(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leading `~` is the user's home folder."""
    site.plugin("abc")
    monkeypatch.setenv("HOME", str(tmp_path))
    a_pack(tmp_path / "packs" / "one", narrowed("my-pack", "abc-letters"))
    assert "my-pack" in ids(site.discover(packs=["~/packs"]))


def test_a_pack_named_twice_is_one_pack(site: Site, tmp_path: Path) -> None:
    """A pack given by itself, in its folder and through a link is no clash."""
    site.plugin("abc")
    pack = a_pack(tmp_path / "packs" / "one", narrowed("my-pack", "abc-letters"))
    (tmp_path / "link").symlink_to(pack)
    discovered = site.discover(packs=[pack, tmp_path / "packs", tmp_path / "link"])
    assert ids(discovered) == ["abc-letters", "my-pack"]
    assert discovered.issues == ()


def test_a_pack_may_name_its_plugin(site: Site, tmp_path: Path) -> None:
    """Without a base, `attributes.plugin` says who opens it."""
    site.plugin("abc")
    pack = a_pack(tmp_path / "p", a_descriptor("my-pack", plugin="abc"))
    assert [offer.plugin for offer in site.discover(packs=[pack]).offers] == ["abc", "abc"]


def test_a_pack_with_a_runtime_is_native(site: Site, tmp_path: Path) -> None:
    """Without base and plugin, an artifact with the role runtime says `native`."""
    site.plugin("native")
    pack = a_pack(tmp_path / "p", a_descriptor("my-pack", abi=None, hooks=None), "model", "runtime")
    discovered = site.discover(packs=[pack])
    assert [(offer.id, offer.plugin) for offer in discovered.offers] == [
        ("my-pack", "native"),
        ("native-letters", "native"),
    ]


def test_the_plugin_for_libraries_needs_no_descriptors(site: Site, tmp_path: Path) -> None:
    """All its cartridges are packs; any other plugin without descriptors is a broken one."""
    for name in ("native", "other"):
        folder = site.plugin(name)
        (folder / f"{name}-letters.json").unlink()
        folder.rmdir()
    pack = a_pack(tmp_path / "p", a_descriptor("my-pack"), "runtime")
    discovered = site.discover(packs=[pack])
    assert ids(discovered) == ["my-pack"]
    assert only_issue(discovered).plugin == "other"


def test_a_pack_without_caps_is_offered(site: Site, tmp_path: Path) -> None:
    """A descriptor without caps can be opened by its id."""
    site.plugin("native")
    descriptor = a_descriptor("upstreams", caps=None, abi=None, hooks=None)
    pack = a_pack(tmp_path / "p", descriptor, "runtime")
    assert "upstreams" in ids(site.discover(packs=[pack]))


def change_mode(descriptor: dict[str, object]) -> None:
    descriptor["io"] = {
        "mode": "streaming",
        "input": {"dtype": "utf8"},
        "output": {"dtype": "int64"},
    }


def change_urn(descriptor: dict[str, object]) -> None:
    the_cap(descriptor)["urn"] = CAP.replace("count-letters", "count-words")


def drop_caps(descriptor: dict[str, object]) -> None:
    attributes = descriptor["attributes"]
    assert isinstance(attributes, dict)
    del attributes["caps"]


def change_default(descriptor: dict[str, object]) -> None:
    the_cap(descriptor)["args"][2]["default_value"] = 11  # type: ignore[index]


def drop_arg(descriptor: dict[str, object]) -> None:
    del the_cap(descriptor)["args"][2]  # type: ignore[attr-defined]


def drop_pack_arg(descriptor: dict[str, object]) -> None:
    del the_cap(descriptor)["args"][1]  # type: ignore[attr-defined]


def restore_pack_default(descriptor: dict[str, object]) -> None:
    the_cap(descriptor)["args"][1]["default_value"] = "hf:a/b"  # type: ignore[index]


def change_output(descriptor: dict[str, object]) -> None:
    the_cap(descriptor)["outputs"][0]["optional"] = True  # type: ignore[index]


DIFFERENCES = [
    pytest.param(
        change_mode, "its io.mode is streaming, and that of abc-letters is batch", id="mode"
    ),
    pytest.param(
        change_urn, "abc-letters declares .*count-letters.* and my-pack does not", id="urn"
    ),
    pytest.param(
        drop_caps, "abc-letters declares .*count-letters.* and my-pack does not", id="no-cap"
    ),
    pytest.param(change_default, "argument limit of .* differs", id="default"),
    pytest.param(drop_arg, "argument limit of .* differs", id="argument"),
    pytest.param(drop_pack_arg, "argument model_spec of .* differs", id="no-pack-argument"),
    pytest.param(restore_pack_default, "model_spec of .* has a default", id="pack-default"),
    pytest.param(change_output, "an output of .* differs", id="output"),
]


@pytest.mark.parametrize(("change", "why"), DIFFERENCES)
def test_error_a_pack_that_differs_from_its_base_is_refused(
    site: Site, tmp_path: Path, change: Callable[[dict[str, object]], None], why: str
) -> None:
    """What differs is named; the base stays on offer."""
    site.plugin("abc")
    descriptor = narrowed("my-pack", "abc-letters")
    change(descriptor)
    pack = a_pack(tmp_path / "p", descriptor)
    discovered = site.discover(packs=[pack])
    assert ids(discovered) == ["abc-letters"]
    issue = only_issue(discovered)
    assert (issue.distribution, issue.version) == (str(pack), "1.2.3")
    assert "descriptor my-pack" in issue.what
    assert re.search(why, issue.why)


def test_error_a_pack_of_an_unknown_base_is_refused(site: Site, tmp_path: Path) -> None:
    """The base is named, and the caps that are lost."""
    pack = a_pack(tmp_path / "p", narrowed("my-pack", "gone-letters"))
    issue = only_issue(site.discover(packs=[pack]))
    assert "narrows the cartridge gone-letters, which no usable plugin offers" in issue.why
    assert issue.caps == (CAP,)


def test_error_a_pack_cannot_narrow_a_pack(site: Site, tmp_path: Path) -> None:
    """A base is a plugin's own cartridge."""
    site.plugin("abc")
    one = a_pack(tmp_path / "1", narrowed("one", "abc-letters"))
    two = a_pack(tmp_path / "2", narrowed("two", "one"))
    discovered = site.discover(packs=[one, two])
    assert ids(discovered) == ["abc-letters", "one"]
    assert "narrows the cartridge one, which" in only_issue(discovered).why


@pytest.mark.parametrize("manifest", [None, "{", "[]", '{"artifacts": [{"role": "model"}, 1]}'])
def test_error_a_pack_that_nothing_opens_is_refused(
    site: Site, tmp_path: Path, manifest: str | None
) -> None:
    """Without base, plugin and runtime artifact, the issue says what is missing."""
    pack = a_pack(tmp_path / "p", a_descriptor("my-pack", abi=None, hooks=None))
    (pack / "manifest.json").unlink()
    if manifest is not None:
        (pack / "manifest.json").write_text(manifest)
    issue = only_issue(site.discover(packs=[pack]))
    assert issue.why == "nothing says which plugin opens it"
    assert "attributes.base or attributes.plugin" in issue.fix


def test_error_a_pack_of_a_plugin_that_is_not_installed_is_refused(
    site: Site, tmp_path: Path
) -> None:
    """The issue names the plugin and what to type."""
    pack = a_pack(tmp_path / "p", a_descriptor("my-pack"), "runtime")
    issue = only_issue(site.discover(packs=[pack]))
    assert "opened by the plugin native, which is not usable" in issue.why
    assert "pip install cartridge-native" in issue.fix


PACKS = [
    pytest.param(a_descriptor("my-pack", abi="1.0", plugin="abc"), "abi is '1.0'", id="other-abi"),
    pytest.param(a_descriptor("my-pack", hooks=9, plugin="abc"), "hooks is 9", id="other-hooks"),
    pytest.param({"id": "my-pack"}, r"^\$\.", id="invalid"),
]


@pytest.mark.parametrize(("descriptor", "why"), PACKS)
def test_error_a_pack_with_a_refused_descriptor_is_reported(
    site: Site, tmp_path: Path, descriptor: dict[str, object], why: str
) -> None:
    """Its path is named; other packs and plugins count."""
    site.plugin("abc")
    bad = a_pack(tmp_path / "packs" / "bad", descriptor)
    a_pack(tmp_path / "packs" / "good", narrowed("good-pack", "abc-letters"))
    discovered = site.discover(packs=[tmp_path / "packs"])
    assert ids(discovered) == ["abc-letters", "good-pack"]
    issue = only_issue(discovered)
    assert (issue.distribution, issue.what) == (str(bad), "pack")
    assert re.search(why, issue.why)


def test_error_a_pack_that_takes_a_cartridge_s_id_costs_both_the_id(
    site: Site, tmp_path: Path
) -> None:
    """a25-pack-id: the plugin and the pack are both named, and neither is offered."""
    site.plugin("abc", a_descriptor("abc-letters"), a_descriptor("abc-more"))
    pack = a_pack(tmp_path / "p", narrowed("abc-letters", "abc-more"))
    discovered = site.discover(packs=[pack])
    assert ids(discovered) == ["abc-more"]
    assert {issue.distribution for issue in discovered.issues} == {"cartridge-abc", str(pack)}
    for issue in discovered.issues:
        assert "cartridge-abc 1.0" in issue.why
        assert str(pack) in issue.why


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["forwards", "backwards"])
def test_error_two_packs_with_one_id_are_refused(
    site: Site, tmp_path: Path, order: tuple[int, int]
) -> None:
    """a25-two-packs: both are named, whatever their order."""
    site.plugin("abc")
    packs = [a_pack(tmp_path / name, narrowed("my-pack", "abc-letters")) for name in "ab"]
    discovered = site.discover(packs=[packs[number] for number in order])
    assert ids(discovered) == ["abc-letters"]
    assert [issue.distribution for issue in discovered.issues] == [str(pack) for pack in packs]


def test_error_a_missing_folder_of_packs_is_reported(site: Site, tmp_path: Path) -> None:
    """The folder is named."""
    issue = only_issue(site.discover(packs=[tmp_path / "gone"]))
    assert (issue.distribution, issue.what) == (str(tmp_path / "gone"), "folder of packs")
    assert issue.why == "there is no such folder"
    assert "CARTRIDGE_PACKS" in issue.fix


def test_error_a_file_is_no_folder_of_packs(site: Site, tmp_path: Path) -> None:
    """A file that is named as a pack is reported as one."""
    (tmp_path / "model.gguf").write_text("")
    issue = only_issue(site.discover(packs=[tmp_path / "model.gguf"]))
    assert issue.why == "it is a file"


def test_error_a_folder_without_packs_is_reported(site: Site, tmp_path: Path) -> None:
    """A folder that holds none is most likely the wrong one."""
    (tmp_path / "wrong" / "folder").mkdir(parents=True)
    issue = only_issue(site.discover(packs=[tmp_path / "wrong"]))
    assert "neither it nor a direct subfolder has a descriptor.json" in issue.why


@pytest.mark.parametrize("named", ["~nobody-of-this-name/packs", "x" * 300, "loop", "loop/pack"])
def test_error_a_folder_of_packs_that_cannot_be_looked_at_is_reported(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """What to do is to correct the path: nobody can reinstall a folder of packs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    issue = only_issue(site.discover(packs=[named]))
    assert (issue.distribution, issue.what) == (named, "folder of packs")
    assert issue.fix == "Correct the path, here or in CARTRIDGE_PACKS."


def test_error_a_pack_that_cannot_be_looked_at_leaves_the_others(
    site: Site, tmp_path: Path
) -> None:
    """One folder that cannot be entered is one issue, and hides no pack beside it."""
    site.plugin("abc")
    a_pack(tmp_path / "packs" / "good", narrowed("my-pack", "abc-letters"))
    (tmp_path / "packs" / "bad").symlink_to("x" * 300)  # as good as a folder without rights
    discovered = site.discover(packs=[tmp_path / "packs"])
    assert ids(discovered) == ["abc-letters", "my-pack"]
    assert "it cannot be read" in only_issue(discovered).why
