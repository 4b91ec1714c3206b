"""What torch_suite.py says of a test, compared with the list."""

import re
import unittest

from torch_suite import SKIPS, Listed, Outcome, objection, read_list

LISTED = Listed("refused", 'there is no such operation: "does not have X"')


class ObjectionTest(unittest.TestCase):
    def test_a_test_that_passes_and_is_not_listed_is_right(self) -> None:
        self.assertEqual(objection(Outcome("passed"), None), "")

    def test_a_listed_test_that_passes_is_not(self) -> None:
        self.assertIn("passes, and is listed", objection(Outcome("passed"), LISTED))

    def test_a_test_that_does_not_pass_is_listed(self) -> None:
        for what in ("failed", "skipped"):
            said = objection(Outcome(what, "first\nValueError: bad\n"), None)
            self.assertEqual(said, f"{what}, and is not listed: ValueError: bad")

    def test_the_reason_is_the_listed_one(self) -> None:
        self.assertEqual(objection(Outcome("failed", "E: it does not have X, sorry"), LISTED), "")
        self.assertIn("not for the listed reason", objection(Outcome("failed", "core"), LISTED))

    def test_a_reason_that_quotes_nothing_is_none(self) -> None:
        self.assertIn("not for", objection(Outcome("failed", "x"), Listed("refused", "because")))


class ListTest(unittest.TestCase):
    def test_lines(self) -> None:
        read = read_list('# a comment\n\ntest_a: refused: it says "a: b"\n')
        self.assertEqual(read, {"test_a": Listed("refused", 'it says "a: b"')})

    def test_bad_lines_are_named(self) -> None:
        for text in ("test_a: refused", "test_a: : x", "test_a: k: x\ntest_a: k: y"):
            with self.assertRaisesRegex(ValueError, "line [12] is not a new"):
                read_list(text)

    def test_the_list_itself(self) -> None:
        text = SKIPS.read_text()
        kinds = set(re.findall(r"^# (\w+): ", text, re.MULTILINE))
        for name, listed in read_list(text).items():
            with self.subTest(name):
                self.assertIn(listed.kind, kinds, "the list begins with what each kind means")
                self.assertRegex(listed.why, '".+"')


if __name__ == "__main__":
    unittest.main()
