//! The three values of the logic of conditions.

/// Whether a condition holds: the three values of Kleene's logic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Truth {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// A measure without a value decides it.
    #[default]
    Unknown,
}

impl Truth {
    /// True if all operands are true, false if one of them is false.
    pub(crate) fn all(operands: impl IntoIterator<Item = Self>) -> Self {
        operands.into_iter().fold(Self::True, |all, operand| match (all, operand) {
            (Self::False, _) | (_, Self::False) => Self::False,
            (Self::Unknown, _) | (_, Self::Unknown) => Self::Unknown,
            (Self::True, Self::True) => Self::True,
        })
    }

    /// True if one of the operands is true, false if all of them are false.
    pub(crate) fn any(operands: impl IntoIterator<Item = Self>) -> Self {
        !Self::all(operands.into_iter().map(|operand| !operand))
    }
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl std::ops::Not for Truth {
    type Output = Self;

    fn not(self) -> Self {
        match self {
            Self::True => Self::False,
            Self::False => Self::True,
            Self::Unknown => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Truth::{False, True, Unknown};

    #[test]
    fn the_operators_are_those_of_kleene() {
        for (one, other, all, any) in [
            (True, True, True, True),
            (True, False, False, True),
            (True, Unknown, Unknown, True),
            (False, False, False, False),
            (False, Unknown, False, Unknown),
            (Unknown, Unknown, Unknown, Unknown),
        ] {
            assert_eq!(Truth::all([one, other]), all, "{one:?} and {other:?}");
            assert_eq!(Truth::all([other, one]), all, "{other:?} and {one:?}");
            assert_eq!(Truth::any([one, other]), any, "{one:?} or {other:?}");
            assert_eq!(Truth::any([other, one]), any, "{other:?} or {one:?}");
        }
        assert_eq!([!True, !False, !Unknown], [False, True, Unknown]);
    }
}
