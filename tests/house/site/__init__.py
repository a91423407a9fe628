"""The site: `make site` makes it in build/site, without a network once its parts are there.

`staging` puts the pages of docs/ and what they lead to into one folder, `reference` and `names` write pages from the
code, and MkDocs makes HTML of them all, as docs/mkdocs.yml says. Each page is there as Markdown, too. llms.txt lists
the pages.
"""
