"""Static files of the page: headers, types, imports and colours."""

from __future__ import annotations

import asyncio
import posixpath
import re
from graphlib import CycleError, TopologicalSorter

import httpx
import pytest
from fastapi import FastAPI

from streamhouse.serve.http.routes.page import POLICY, assets, router, scripts, version

SCRIPTS = sorted(name for name in assets() if name.endswith(".js"))
SVG = "http://www.w3.org/2000/svg"
EXPORTED = r"^export (?:async )?(?:function\*?|class|const) (\w+)"
SERVED_FROM = {"docs/api.js": "openapi/api.js"}
LEAST_CONTRAST = 4.5
READ_ON = {
    "ink": ("paper", "card", "raised", "hover", "flash-up", "flash-down", "flash-set"),
    "soft": ("paper", "card", "raised", "hover"),
    "accent": ("card", "paper", "raised", "accent-soft"),
    "amber": ("card", "amber-soft"),
    "red": ("card", "red-soft"),
    "on-accent": ("accent",),
    "card": ("red",),
    "of-1": ("card",),
    "of-2": ("card",),
    "of-3": ("card",),
}


def ask(path: str, method: str = "GET", **headers: str) -> httpx.Response:
    app = FastAPI()
    app.include_router(router)

    async def asked() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(asked())


def text(name: str) -> str:
    return assets()[name].body.decode()


def imports(name: str) -> list[tuple[set[str], str]]:
    """What a script imports by name, and from which other one."""
    found = re.findall(r'^import \{([^}]*)\} from "(\.[^"]+)";$', text(name), re.MULTILINE)
    return [(set(re.findall(r"\w+", names)), resolved(name, path)) for names, path in found]


def resolved(name: str, path: str) -> str:
    """The file that a relative path in a script means."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), path))


def dependencies() -> dict[str, set[str]]:
    """For each script, the files whose functions or types it imports."""
    relative = r'(?:\bfrom |\bimport\(|^import )"(\.[^"]+)"'
    return {
        name: {resolved(name, path) for path in re.findall(relative, text(name), re.MULTILINE)}
        for name in SCRIPTS
    }


def of_folders(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The dependencies of scripts as dependencies between their folders."""
    folders: dict[str, set[str]] = {}
    for name, others in graph.items():
        folder = posixpath.dirname(name)
        inside = folders.setdefault(folder, set())
        inside |= {posixpath.dirname(other) for other in others} - {folder}
    return folders


def test_page_loads_from_its_own_server_only() -> None:
    answer = ask("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in POLICY and "unsafe" not in POLICY


@pytest.mark.parametrize("name", assets())
def test_each_file_has_its_type_and_an_etag(name: str) -> None:
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg"}
    answer = ask(f"/page/{name}")
    assert answer.headers["content-type"].startswith(kinds[name.rpartition(".")[2]])
    assert answer.headers["content-security-policy"] == POLICY
    tag = answer.headers["etag"]
    for known in (tag, f'"other", W/{tag}'):
        again = ask(f"/page/{name}", **{"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tag
    assert ask(f"/page/{name}", **{"If-None-Match": '"other"'}).status_code == 200


def test_the_page_names_all_scripts_that_it_loads() -> None:
    body = ask("/").text
    graph, reached, left = dependencies(), {"app.js"}, ["app.js"]
    while left:
        for other in graph[left.pop()] - reached:
            if other in graph:
                reached.add(other)
                left.append(other)
    preloaded = re.findall(r'<link rel="modulepreload" href="page/~(\w+)/([^"]+)">', body)
    started = re.findall(r'<script type="module" src="page/~(\w+)/([^"]+)">', body)
    assert {version for version, _ in [*preloaded, *started]} == {version()}
    # Types alone are imported from further files.
    assert reached >= {name for _, name in [*preloaded, *started]} >= set(scripts())
    assert started == [(version(), "app.js")]


def test_files_with_a_version_are_kept_by_browsers() -> None:
    for path in re.findall(r'(?:href|src)="(page/[^"]+)"', ask("/").text):
        answer = ask(f"/{path}")
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert ask("/").headers["cache-control"] == "no-cache"
    old = ask("/page/~0123456789ab/app.js")
    assert (old.text, old.headers["cache-control"]) == (text("app.js"), "no-cache")
    assert ask(f"/page/~{version()}/nothing.js").status_code == 404
    assert ask(f"/page/~{version()}").status_code == 404


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("gzip, br", "gzip"), ("br, *", "gzip"), ("gzip;q=0", None), ("identity", None), ("", None)],
)
def test_files_are_compressed_for_those_who_take_it(accepted: str, encoding: str | None) -> None:
    answer = ask("/page/app.js", **{"Accept-Encoding": accepted})
    assert answer.headers.get("content-encoding") == encoding
    assert answer.headers["vary"] == "Accept-Encoding"
    assert answer.text == text("app.js")
    known = {"If-None-Match": answer.headers["etag"], "Accept-Encoding": accepted}
    assert ask("/page/app.js", **known).status_code == 304
    other = "identity" if encoding else "gzip"
    assert ask("/page/app.js", **{**known, "Accept-Encoding": other}).status_code == 200


def test_head_has_no_body() -> None:
    answer = ask("/", "HEAD")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        "nothing.js",
        "chart",
        "chart/",
        "chart/nothing.js",
        "server/responses.d.ts",
        "../http/app.py",
        "__init__.py",
        "..%2f..%2ffeed.py",
        "%00",
    ],
)
def test_unknown_files(path: str) -> None:
    assert ask(f"/page/{path}").status_code == 404


@pytest.mark.parametrize("name", assets())
def test_no_urls_of_other_hosts(name: str) -> None:
    body = text(name).replace(SVG, "")
    assert re.findall(r"https?://|wss?://|@import|\burl\((?!#)", body) == []


def test_no_inline_scripts_or_styles() -> None:
    page = text("index.html")
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=|javascript:", page) == []
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", page))
    assert set(re.findall(r'"page/([^"]+)"', page)) <= set(assets())
    ids = set(re.findall(r'\bid="([^"]+)"', page))
    assert set(re.findall(r'byId\("([^"]+)"\)', text("app.js"))) <= ids


def test_all_scripts_exist_and_are_used() -> None:
    pages = [text(name) for name in assets() if name.endswith(".html")]
    reached: set[str] = set()
    sources = [path for page in pages for path in re.findall(r'src="([^"]+\.js)"', page)]
    left = [SERVED_FROM.get(path, path.removeprefix("page/")) for path in sources]
    while left:
        name = left.pop()
        if name not in reached:
            reached.add(name)
            left += [other for _, other in imports(name)]
    assert sorted(reached) == SCRIPTS


@pytest.mark.parametrize("name", SCRIPTS)
def test_imports_match_exports(name: str) -> None:
    for names, other in imports(name):
        exported = re.findall(EXPORTED, text(other), re.MULTILINE)
        assert names <= set(exported), other
        for word in names:
            assert len(re.findall(rf"\b{word}\b", text(name))) > 1, f"{word} is not used"


def test_imports_have_no_cycles() -> None:
    scripts = dependencies()
    assert set().union(*scripts.values()) - set(SCRIPTS) == {"server/responses.d.ts"}
    TopologicalSorter(scripts).prepare()
    TopologicalSorter(of_folders(scripts)).prepare()


def test_folders_that_import_each_other_are_a_cycle() -> None:
    scripts = {"chart/bars.js": {"ui/dom.js"}, "ui/theme.js": {"chart/axes.js"}}
    TopologicalSorter(scripts).prepare()
    with pytest.raises(CycleError, match="nodes are in a cycle"):
        TopologicalSorter(of_folders(scripts)).prepare()


@pytest.mark.parametrize("name", SCRIPTS)
def test_text_is_never_markup(name: str) -> None:
    found = re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text(name)
    )
    assert found == []


@pytest.mark.parametrize("shade", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ink", READ_ON)
def test_colour_contrast(ink: str, shade: int) -> None:
    pairs = re.findall(r"--([a-z0-9-]+): light-dark\((#\w{6}), (#\w{6})\);", text("style.css"))
    colours = {name: (light, dark)[shade] for name, light, dark in pairs}
    for ground in READ_ON[ink]:
        found = contrast(colours[ink], colours[ground])
        assert found >= LEAST_CONTRAST, f"{ink} on {ground}: {found:.2f}"


def contrast(one: str, other: str) -> float:
    """The ratio of two colours' luminances, as WCAG 2 defines it."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
