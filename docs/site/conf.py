"""Sphinx's configuration. scripts/site runs it; docs/site/stage.py says what Sphinx sees."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "Flash Attention, step by step"
author = "flash-steps contributors"
html_title = project
html_short_title = "flash-steps"
language = "en"
extensions = ["myst_parser", "sphinx.ext.mathjax", "sources"]
root_doc = "index"
smartquotes = False  # two dashes begin an option
suppress_warnings = ["myst.header"]  # the glossary has small headings under its large one

# The dialect of a Git host: $...$ and ```math, headings that links can name. attrs_inline only for what stage.py writes.
myst_enable_extensions = ["dollarmath", "attrs_inline", "html_image"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 6
myst_url_schemes = {"http": None, "https": None, "mailto": None, "site": None}
mathjax_path = "mathjax/tex-chtml-full.js"
mathjax3_config = {
    "options": {"enableMenu": False},
    "chtml": {"scale": 0.94},
    "tex": {"packages": {"[-]": ["noundefined", "noerrors"]}},
}  # so that a mistake is one, and is found

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
templates_path = ["templates"]
html_copy_source = False
html_show_copyright = False
html_use_index = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/language.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
