"""Building blocks of regressions: smooth terms, scales, penalties, screening, and tests of residuals."""
