# SPDX-License-Identifier: Apache-2.0
"""Writes index.html into a folder of wheels: the page that `pip install --find-links URL` reads."""

import hashlib
import sys
from html import escape
from pathlib import Path
from urllib.parse import quote


def page(folder: Path) -> str:
    """One link for each wheel, with the hash that pip verifies."""
    links = []
    for wheel in sorted(folder.glob("*.whl")):
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        links.append(f'<a href="{quote(wheel.name)}#sha256={digest}">{escape(wheel.name)}</a><br>')
    return "\n".join(["<!DOCTYPE html>", "<title>custom_pypto wheels</title>", *links, ""])


if __name__ == "__main__":
    dist = Path(sys.argv[1])
    if not any(dist.glob("*.whl")):
        raise SystemExit(f"{sys.argv[0]}: there is no wheel in {dist}")
    (dist / "index.html").write_text(page(dist))
