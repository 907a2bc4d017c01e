//! Proportions: exact binomial tails, one acceptance interval per backend.
//!
//! With `k` backends and `n` probes, backend `i` answers a number of probes that is binomially distributed with its
//! promised share `p_i`. It is accepted within the narrowest interval that leaves at most `FALSE_ALARM / (2k)` in either
//! tail, so by the union bound a correct proxy is blamed with probability at most [`FALSE_ALARM`], whatever the shares.

/// Bound on blaming a correct proxy, per check.
pub const FALSE_ALARM: f64 = 1e-9;

/// Bound on missing a backend that gets half as much, or half as much again, as it should, per backend.
pub const MISS: f64 = 1e-6;

/// How many probes are tried before giving up on a share that is too small to judge.
const MOST: usize = 200_000;

/// `ln(n!)` for 0 to `n`.
pub(super) fn ln_factorials(n: usize) -> Vec<f64> {
    let mut table = Vec::with_capacity(n + 1);
    let mut sum = 0.0_f64;
    table.push(sum);
    for number in 1..=n {
        sum += (number as f64).ln();
        table.push(sum);
    }
    table
}

/// Binomial distribution as probabilities of 0 to `n`.
fn binomial(n: usize, p: f64) -> Vec<f64> {
    let factorials = ln_factorials(n);
    (0..=n)
        .map(|x| {
            if p <= 0.0 || p >= 1.0 {
                return f64::from(u8::from((p <= 0.0 && x == 0) || (p >= 1.0 && x == n)));
            }
            let choose = factorials[n] - factorials[x] - factorials[n - x];
            (choose + x as f64 * p.ln() + (n - x) as f64 * (1.0 - p).ln()).exp()
        })
        .collect()
}

/// The numbers of answers, out of `n`, that a backend with share `p` among `k` backends may have: first and last.
pub fn accepted(n: usize, p: f64, k: usize) -> (usize, usize) {
    let tail = FALSE_ALARM / (2.0 * k.max(1) as f64);
    let mass = binomial(n, p);
    let edge = |numbers: &mut dyn Iterator<Item = usize>, last: usize| {
        let mut outside = 0.0;
        for x in numbers {
            outside += mass[x];
            if outside > tail {
                return x;
            }
        }
        last
    };
    (edge(&mut (0..=n), n), edge(&mut (0..=n).rev(), 0))
}

/// Whether `n` probes tell the promised `shares` from a proxy that leaves one backend out (always seen), or gives one
/// half of its share or half as much again (overlooked with probability at most [`MISS`]).
pub fn enough(n: usize, shares: &[f64]) -> bool {
    let mut different: Vec<f64> = shares.iter().copied().filter(|share| *share > 0.0).collect();
    different.dedup();
    different.iter().all(|share| {
        let (low, high) = accepted(n, *share, shares.len());
        let overlooked = |wrong: f64| {
            // A backend that is promised everything, or would get more than that, is told by the others' answers.
            let judged = *share < 1.0 && wrong <= 1.0;
            if judged { binomial(n, wrong)[low..=high].iter().sum() } else { 0.0 }
        };
        low > 0 && overlooked(share * 1.5) <= MISS && overlooked(share * 0.5) <= MISS
    })
}

/// The fewest probes (to within a few) that are [`enough`]; `None` if a share is too small to be judged in reason.
pub fn needed(shares: &[f64]) -> Option<usize> {
    let mut upper = 1;
    while !enough(upper, shares) {
        upper *= 2;
        if upper > MOST {
            return None;
        }
    }
    let mut lower = upper / 2;
    while upper - lower > 1 {
        let middle = usize::midpoint(lower, upper);
        if enough(middle, shares) { upper = middle } else { lower = middle }
    }
    Some(upper)
}

/// Whether two proxies cannot have drawn a backend from the same share: it answered `a.0` of `a.1` probes of the one and
/// `b.0` of `b.1` of the other. Given how often it answered in all, that is hypergeometrically distributed whatever the
/// share is (Fisher's exact test); equal shares are called different with probability at most [`FALSE_ALARM`]` / k`.
pub fn differ(a: (usize, usize), b: (usize, usize), k: usize) -> bool {
    let (sent, answered) = (a.1 + b.1, a.0 + b.0);
    let factorials = ln_factorials(sent);
    let choose = |n: usize, x: usize| factorials[n] - factorials[x] - factorials[n - x];
    let mass = |x: usize| (choose(answered, x) + choose(sent - answered, a.1 - x) - choose(sent, a.1)).exp();
    let (first, last) = (a.1.saturating_sub(sent - answered), answered.min(a.1));
    let tail = FALSE_ALARM / (2.0 * k.max(1) as f64);
    let below: f64 = (first..=a.0).map(mass).sum();
    let above: f64 = (a.0..=last).map(mass).sum();
    below <= tail || above <= tail
}
