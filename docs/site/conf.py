"""Sphinx's configuration. scripts/site runs it on the root, with scripts/ on Python's path."""

from importlib.metadata import distribution

project = html_title = "Flash Attention, step by step"
author = "flash-steps contributors"
html_short_title = "flash-steps"
language = "en"
extensions = ["myst_parser", "sphinx.ext.mathjax", "lab.site.extension"]
root_doc = "docs/site/index"
include_patterns = ["*.md", "docs/**", "reference/**"]
exclude_patterns = [".*", "build*", "exercises"]
smartquotes = False  # two dashes begin an option
suppress_warnings = ["myst.header"]  # the glossary has small headings under its large one

# The dialect of a Git host: $...$ and ```math, headings that links can name.
myst_enable_extensions = ["dollarmath", "html_image"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 6
mathjax_path = "mathjax/tex-chtml.js"
mathjax3_config = {
    "options": {"enableMenu": False},
    "chtml": {"scale": 0.94},
    "tex": {"packages": {"[-]": ["noundefined", "noerrors"]}},
}  # so that a mistake is one, and is found

html_theme = "furo"
html_theme_options = {"source_branch": "main", "top_of_page_buttons": ["view"]}
mathjax = distribution("sphinx-mathjax-offline").locate_file("sphinx-mathjax-offline/static")
html_static_path = ["static", str(mathjax)]  # a wheel's, so that no page needs a network
html_css_files = ["site.css"]
html_favicon = "static/icon.svg"
templates_path = ["templates"]
html_additional_pages = {"index": "index.html"}  # leads to the first page
html_copy_source = False
html_show_copyright = False
html_use_index = False
parts = "brand language search scroll-start navigation scroll-end".split()
html_sidebars = {"**": [f"sidebar/{part}.html" for part in parts]}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
