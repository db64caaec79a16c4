"""The web page, to watch and steer runs from a browser. It reads records, and steers by running our own commands.

`checks` says which requests are answered at all, `app` answers them, `watched` follows the record of a run, the modules
`panels`, `home` and `details` draw it as elements, and `page.js` only puts elements into the page.
"""
