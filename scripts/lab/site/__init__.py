"""The pages of the repository as a web site: Sphinx, MyST and Furo, and a check in a browser."""
