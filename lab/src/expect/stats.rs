//! Exact binomial tails for shares, one interval per backend.
//!
//! With `k` backends and `n` probes, the answers of backend `i` are binomially distributed with its share `p_i`. The
//! accepted interval is the narrowest that leaves at most `FALSE_ALARM / (2k)` in either tail. By the union bound a
//! correct proxy is blamed with a probability of at most [`FALSE_ALARM`].

/// The probability of blaming a correct proxy, per check.
pub const FALSE_ALARM: f64 = 1e-9;

/// The probability of missing a share skewed by the sensitivity, per backend.
pub const MISS: f64 = 1e-6;

const MOST: usize = 200_000;

/// Returns `ln(k!)` for each `k` from 0 to `n`.
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

/// Returns the least and most accepted answers out of `n` from a backend with share `p` among `k` backends.
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

/// The default sensitivity: the smallest skew that a check must detect, relative to the share.
pub const SENSITIVITY: f64 = 0.5;

/// Whether `n` probes always detect a backend that gets nothing, and detect a share that is wrong by `skew` except with
/// probability [`MISS`].
pub fn enough(n: usize, shares: &[f64], skew: f64) -> bool {
    distinct(shares).into_iter().all(|share| {
        let (low, high) = accepted(n, share, shares.len());
        let overlooked = |wrong: f64| {
            if is_recognized_by_others(share, wrong) { 0.0 } else { binomial(n, wrong)[low..=high].iter().sum() }
        };
        low > 0 && overlooked(share * (1.0 + skew)) <= MISS && overlooked(share * (1.0 - skew)) <= MISS
    })
}

fn distinct(shares: &[f64]) -> Vec<f64> {
    let mut distinct: Vec<f64> = shares.iter().copied().filter(|share| *share > 0.0).collect();
    distinct.dedup();
    distinct
}

/// Whether the other backends' answers show the skew: with a share of 1, or a skew to more than 1.
fn is_recognized_by_others(share: f64, wrong: f64) -> bool {
    share >= 1.0 || wrong > 1.0
}

/// Returns the fewest probes (within a few) that are [`enough`]; `None` if more than [`MOST`].
pub fn needed(shares: &[f64], skew: f64) -> Option<usize> {
    let mut upper = 1;
    while !enough(upper, shares, skew) {
        upper *= 2;
        if upper > MOST {
            return None;
        }
    }
    let mut lower = upper / 2;
    while upper - lower > 1 {
        let middle = usize::midpoint(lower, upper);
        if enough(middle, shares, skew) { upper = middle } else { lower = middle }
    }
    Some(upper)
}

/// Returns the probes after which each of `backends` equal backends has answered, except with probability
/// [`FALSE_ALARM`].
pub fn until_all(backends: usize) -> usize {
    if backends < 2 {
        return backends;
    }
    let missed = (1.0 - 1.0 / backends as f64).ln();
    ((FALSE_ALARM / backends as f64).ln() / missed).ceil() as usize
}

/// Returns the smallest skew, in hundredths of the share, that `n` probes detect except with probability [`MISS`];
/// `None` if they may miss a backend that gets nothing, or twice its share.
///
/// Uses Chernoff's bound on a tail, `e^(-n·D(x/n‖p))`: slightly too large, but a search with exact tails takes seconds.
pub fn smallest_skew(n: usize, shares: &[f64]) -> Option<u32> {
    let least = |share: f64| {
        let (low, high) = accepted(n, share, shares.len());
        (1..=100).find(|hundredths: &u32| {
            let skew = f64::from(*hundredths) / 100.0;
            let is_seen = |wrong: f64, edge: usize| {
                let edge = edge as f64 / n as f64;
                let outside = if wrong > share { edge < wrong } else { edge > wrong };
                is_recognized_by_others(share, wrong) || outside && n as f64 * divergence(edge, wrong) >= -MISS.ln()
            };
            is_seen(share * (1.0 + skew), high) && is_seen(share * (1.0 - skew), low)
        })
    };
    distinct(shares).into_iter().map(least).try_fold(0, |most, least| least.map(|least| most.max(least)))
}

/// Returns the Kullback–Leibler divergence of two coins.
fn divergence(x: f64, p: f64) -> f64 {
    let part = |x: f64, p: f64| if x <= 0.0 { 0.0 } else { x * (x / p).ln() };
    part(x, p) + part(1.0 - x, 1.0 - p)
}

/// Whether two proxies drew a backend from different shares, given `(answers, probes)` of each. Fisher's exact test:
/// calls equal shares different with a probability of at most [`FALSE_ALARM`]` / k`.
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
