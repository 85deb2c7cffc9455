"""The form of a finding (`finding`), kinds by what they are about (`of_groups`, …), and all of them (`kinds`)."""
