"""The web page, to watch and steer runs from a browser. It reads records, and steers by running ralphtool's commands.

`checks` decides which requests are answered, `app` answers them, `watched` follows the record of a run, the modules
`panels`, `home` and `details` draw it as elements, and `page.js` only puts elements into the page.
"""
