//! Proportions: exact binomial tails, one acceptance interval per backend.
//!
//! With `k` backends and `n` probes, backend `i` answers a number of probes that is binomially distributed with its
//! promised share `p_i`. It is accepted within the narrowest interval that leaves at most `FALSE_ALARM / (2k)` in either
//! tail, so by the union bound a correct proxy is blamed with probability at most [`FALSE_ALARM`], whatever the shares.

/// Bound on blaming a correct proxy, per check.
pub const FALSE_ALARM: f64 = 1e-9;

/// Bound on missing a backend that gets too much or too little by the skew that is to be seen, per backend.
pub const MISS: f64 = 1e-6;

/// How many probes are tried before giving up on a share or a skew that is too small to judge.
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

/// How large a part of its share a backend gets too much or too little, when that is to be seen; unless a step or a run says
/// otherwise.
pub const SENSITIVITY: f64 = 0.5;

/// Whether `n` probes tell the promised `shares` from a proxy that leaves one backend out (always seen), or gives one
/// too much or too little by `skew`, a part of its share (overlooked with probability at most [`MISS`]).
pub fn enough(n: usize, shares: &[f64], skew: f64) -> bool {
    distinct(shares).into_iter().all(|share| {
        let (low, high) = accepted(n, share, shares.len());
        let overlooked = |wrong: f64| {
            if is_recognized_by_others(share, wrong) { 0.0 } else { binomial(n, wrong)[low..=high].iter().sum() }
        };
        low > 0 && overlooked(share * (1.0 + skew)) <= MISS && overlooked(share * (1.0 - skew)) <= MISS
    })
}

/// The shares that differ from each other and from nothing.
fn distinct(shares: &[f64]) -> Vec<f64> {
    let mut distinct: Vec<f64> = shares.iter().copied().filter(|share| *share > 0.0).collect();
    distinct.dedup();
    distinct
}

/// A backend that is promised everything, or would get more than that, is recognized by the others' answers.
fn is_recognized_by_others(share: f64, wrong: f64) -> bool {
    share >= 1.0 || wrong > 1.0
}

/// The fewest probes (to within a few) that are [`enough`]; `None` if that are more than can be sent in reason.
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

/// The smallest skew of any of the promised `shares` that `n` probes overlook with probability at most [`MISS`], in hundredths of
/// the share; `None` where they may overlook that a backend gets nothing, or twice its share.
///
/// Chernoff's bound on a tail, `e^(-n·D(x/n‖p))`, stands for the tail itself: the skew is a little larger than it would be by
/// exact tails, which take seconds to search on a slow machine.
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

/// Kullback and Leibler's divergence of a coin that shows heads with probability `x` from one with `p`.
fn divergence(x: f64, p: f64) -> f64 {
    let part = |x: f64, p: f64| if x <= 0.0 { 0.0 } else { x * (x / p).ln() };
    part(x, p) + part(1.0 - x, 1.0 - p)
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
