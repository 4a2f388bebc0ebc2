//! Rows in memory, packed as pairs of numbers: about two bytes a row instead of the four that the BPF program searches.

/// Appends two numbers in as few bytes as they need (LEB128).
#[inline]
pub(crate) fn push_pair(bytes: &mut Vec<u8>, first: u32, second: u32) {
    if first | second < 0x80 {
        bytes.extend_from_slice(&[first as u8, second as u8]);
    } else {
        push_number(bytes, first);
        push_number(bytes, second);
    }
}

/// Takes two numbers from the front of the bytes; `None` at their end.
#[inline]
pub(crate) fn take_pair(bytes: &mut &[u8]) -> Option<(u32, u32)> {
    match bytes {
        [first, second, rest @ ..] if first | second < 0x80 => {
            let pair = ((*first).into(), (*second).into());
            *bytes = rest;
            Some(pair)
        }
        _ => Some((take_number(bytes)?, take_number(bytes)?)),
    }
}

fn push_number(bytes: &mut Vec<u8>, number: u32) {
    let mut rest = number;
    while rest >= 0x80 {
        bytes.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u32> {
    let mut number = 0;
    for shift in (0..u32::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u32::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_as_they_were_pushed() {
        let numbers = [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, 0xff_ffff, u32::MAX];
        let pairs: Vec<(u32, u32)> =
            numbers.iter().flat_map(|first| numbers.map(|second| (*first, second))).collect();
        let mut bytes = Vec::new();
        pairs.iter().for_each(|(first, second)| push_pair(&mut bytes, *first, *second));
        let mut rest = bytes.as_slice();
        let taken: Vec<(u32, u32)> = std::iter::from_fn(|| take_pair(&mut rest)).collect();
        assert_eq!(taken, pairs);
        assert_eq!(bytes.len(), 2 * numbers.len() * (1 + 1 + 1 + 2 + 2 + 3 + 4 + 5));
    }

    #[test]
    fn truncated_bytes_have_no_pair() {
        for mut bytes in [&[][..], &[1], &[1, 0x80], &[0x80, 1], &[0xff; 12]] {
            assert_eq!(take_pair(&mut bytes), None);
        }
    }
}
