"""`python -m benchbook.report`: write the answer's pages from the rows there are, behind everything else that runs."""

import os

from benchbook import report

if __name__ == "__main__":
    os.nice(10)
    report.write_answers()
