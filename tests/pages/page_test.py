"""The status pages of a made-up cluster: their markup, their times, and what a browser draws.

    page_test.py PAGE_SAMPLES [--keep DIR]

PAGE_SAMPLES writes the pages, and fails if one takes the coordinator too long. Each page must be
well-formed, must load nothing and must run no script. Then Chromium, if it is installed, draws them
in light and dark and as a phone. --keep DIR leaves the pages and screenshots there, to be looked
at.
"""

import argparse
import html.parser
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

VOID = {"meta", "input", "br", "path"}
# Width, height and options of each way to look at a page.
LOOKS = {
    "light": (1280, 1800, []),
    "dark": (1280, 1800, ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]),
    "phone": (500, 2400, []),
}
# Without an account of its own, Chromium's sandbox does not work.
CHROMIUM = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
]
DEADLINE = 60


class Strict(html.parser.HTMLParser):
    """Refuses what a browser would have to guess."""

    def __init__(self, page):
        super().__init__()
        self.page = page
        self.open = []
        self.faults = []

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.faults.append(f"<{tag}> has an attribute twice")
        if tag == "script" or any(name.startswith("on") for name in names):
            self.faults.append(f"<{tag}> runs a script")
        for name, value in attrs:
            if name in ("src", "srcset") or (name == "href" and not value.startswith("/")):
                self.faults.append(f"<{tag}> loads {value}")
            if name == "style":
                self.faults.append(f"<{tag}> has a style, which the page's policy forbids")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> closes another element at {self.getpos()}")

    def finish(self):
        self.close()
        if self.open:
            self.faults.append(f"not closed: {self.open}")
        return [f"{self.page}: {fault}" for fault in self.faults]


def markup_faults(path):
    text = path.read_text(encoding="utf-8")
    parser = Strict(path.name)
    parser.feed(text)
    faults = parser.finish()
    if re.search(r"url\(|@import|javascript:", text):
        faults.append(f"{path.name}: loads something")
    if re.search(r"\b(nan|inf)\b", re.sub(r"<[^>]*>", "", text)):
        faults.append(f"{path.name}: shows a number that is none")
    return faults


def draw(chromium, page, look, out):
    """Draws a page and returns the seconds that it took."""
    width, height, options = LOOKS[look]
    with tempfile.TemporaryDirectory() as profile:
        begin = time.monotonic()
        done = subprocess.run(
            [chromium, *CHROMIUM, *options]
            + [f"--user-data-dir={profile}", f"--window-size={width},{height}"]
            + [f"--screenshot={out}", page.as_uri()],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
    if done.returncode != 0 or not out.exists():
        raise SystemExit(f"page_test: Chromium drew no {page.name}: {done.stderr[-500:]}")
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page_samples")
    parser.add_argument("--keep", type=pathlib.Path)
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pages-"))
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run([args.page_samples, str(folder)], check=True, timeout=DEADLINE)
        pages = sorted(folder.glob("*.html"))
        faults = [fault for page in pages for fault in markup_faults(page)]
        if faults or not pages:
            raise SystemExit("\n".join(faults) or "page_test: there are no pages")
        chromium = shutil.which("chromium") or shutil.which("chromium-browser")
        if chromium is None:
            print("page_test: the pages are not drawn: Debian's package chromium is not here")
            return 0
        for page in pages:
            for look in LOOKS:
                out = (args.keep or folder) / f"{page.stem}-{look}.png"
                print(f"{out.name:24} {draw(chromium, page, look, out):.1f} s")
        if args.keep:
            for page in pages:
                shutil.copy(page, args.keep)
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
