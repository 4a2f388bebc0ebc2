//! Computes mean and deviation of the ratios of samples found to samples due.

/// The samples of one run, and what they are compared with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) samples: usize,
    /// CPU time of the sampled threads in seconds.
    pub(super) cpu_seconds: f64,
    /// CPU time of the sampled threads, as a share of all CPUs.
    pub(super) busy: f64,
}

/// The runs of a profiler on a load.
#[derive(Debug, Default)]
pub(super) struct Ratios {
    found_to_due: Vec<f64>,
    due: Vec<f64>,
    busy: Vec<f64>,
}

impl Ratios {
    pub(super) fn add(&mut self, counted: &Counted, frequency_hz: u64) {
        let due = counted.cpu_seconds * frequency_hz as f64;
        self.found_to_due.push(counted.samples as f64 / due);
        self.due.push(due);
        self.busy.push(counted.busy);
    }

    /// Whether there are enough runs for a standard deviation.
    pub(super) fn has_deviation(&self) -> bool {
        self.found_to_due.len() > 1
    }

    /// The mean of found to due.
    pub(super) fn mean(&self) -> f64 {
        mean(&self.found_to_due)
    }

    /// The standard deviation of found to due.
    pub(super) fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.found_to_due.iter().map(|ratio| (ratio - mean).powi(2)).sum();
        (squares / (self.found_to_due.len() as f64 - 1.0)).sqrt()
    }

    /// The standard deviation of ticks at random times, if each tick finds the threads with the probability that a CPU
    /// runs them: a binomial distribution.
    pub(super) fn binomial(&self) -> f64 {
        let variances = self.due.iter().zip(&self.busy).map(|(due, busy)| (1.0 - busy) / due);
        mean(&variances.collect::<Vec<_>>()).sqrt()
    }

    /// The mean of the samples due in a run.
    pub(super) fn due(&self) -> f64 {
        mean(&self.due)
    }

    /// The mean share of all CPUs.
    pub(super) fn busy(&self) -> f64 {
        mean(&self.busy)
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_compared_with_that_of_a_binomial_distribution() {
        let mut ratios = Ratios::default();
        for samples in [90, 110] {
            ratios.add(&Counted { samples, cpu_seconds: 10.0, busy: 0.19 }, 10);
        }
        assert!((ratios.mean() - 1.0).abs() < 1e-9, "{ratios:?}");
        assert!((ratios.deviation() - 0.02_f64.sqrt()).abs() < 1e-9, "{ratios:?}");
        assert!((ratios.binomial() - 0.09).abs() < 1e-9, "{ratios:?}");
        assert!((ratios.due() - 100.0).abs() < 1e-9 && (ratios.busy() - 0.19).abs() < 1e-9);
    }
}
