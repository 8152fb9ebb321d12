"""The lab: everything that measures, records, compares, tabulates or draws."""
