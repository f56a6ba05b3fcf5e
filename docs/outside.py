"""A preprocessor of mdBook: links that lead to files which the site has not, or elsewhere.

The pages link files of the repository, such as ../config/tollgate.yaml, which are not in the site. Where
book.toml, or the variable MDBOOK_PREPROCESSOR__OUTSIDE__REPOSITORY, says where the repository can be read,
they lead there. Otherwise the site names the file in place of the link. A README.md is the index.html of
its folder in the site. The contents are its sidebar and no page: a link to them leads to the first page.
"""

import json
import posixpath
import re
import sys

# Fenced code, code in a line, and links.
PIECE = re.compile(r"(?ms)^ *```.*?^ *```$|(`+)(?:.(?!\n\n))*?\1|(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def rewritten(text, folder, repository):
    """A page's text, with links out of docs/ as the site needs them. `folder` is the page's, in docs/."""

    def replace(found):
        label, target = found.group(2), found.group(3)
        if target is None or "://" in target or target.startswith("#"):
            return found.group(0)
        path, _, anchor = target.partition("#")
        file = posixpath.normpath(posixpath.join("docs", folder, path))
        if file == "docs/SUMMARY.md":
            file, anchor = "docs/README.md", ""
        hash_and_anchor = f"#{anchor}" if anchor else ""
        if file.startswith("docs/"):
            page = re.sub(r"README\.md$", "index.md", file.removeprefix("docs/"))
            return f"[{label}]({posixpath.relpath(page, folder or '.')}{hash_and_anchor})"
        if repository:
            return f"[{label}]({repository.rstrip('/')}/{file}{hash_and_anchor})"
        return label if file in label else f"{label} (`{file}`)"

    return PIECE.sub(replace, text)


def visit(items, repository):
    """Rewrites all chapters, and those below them."""
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter is None:
            continue
        folder = posixpath.dirname(chapter["source_path"] or "")
        chapter["content"] = rewritten(chapter["content"], folder, repository)
        visit(chapter["sub_items"], repository)


def main():
    """Reads a context and a book, and writes the book."""
    if sys.argv[1:2] == ["supports"]:
        return
    context, book = json.load(sys.stdin)
    own = context["config"].get("preprocessor", {}).get("outside", {})
    visit(book.get("items") or book.get("sections"), own.get("repository", ""))
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
