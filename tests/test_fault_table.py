"""The page of faults says what the tests hold."""

import fault_table


def test_the_page_of_faults_is_that_of_the_marks():
    assert fault_table.PAGE.read_text(encoding="utf-8") == fault_table.table()
