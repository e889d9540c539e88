"use strict";
// Relaxed Average Precision of one list and its gradient: doap/objectives/average_precision.py in JavaScript.
// tests/docs/test_interactive.py compares the two.

/**
 * Return the histograms, the relaxed AP of a list, and its derivative by each distance.
 *
 * @param {number[]} distances - Distance of each item to the query, in 0..max.
 * @param {boolean[]} isMatch - Whether each item is a match.
 * @param {number} bins - b, the number of bin intervals.
 * @param {number} max - The largest distance; 2 between unit vectors.
 */
function relaxedAveragePrecision(distances, isMatch, bins, max) {
  const width = max / bins;
  const matches = new Array(bins + 1).fill(0);
  const ranked = new Array(bins + 1).fill(0);
  const lower = distances.map((d) => Math.min(Math.max(Math.floor(d / width), 0), bins - 1));
  distances.forEach((d, i) => {
    const upperWeight = d / width - lower[i];
    for (const histogram of isMatch[i] ? [matches, ranked] : [ranked]) {
      histogram[lower[i]] += 1 - upperWeight;
      histogram[lower[i] + 1] += upperWeight;
    }
  });
  // Numerator and denominator of the precision at each bin: H_{k-1} + H_k + 1.
  const sums = (histogram) => {
    let before = 0;
    return histogram.map((count) => {
      const sum = 2 * before + count + 1;
      before += count;
      return sum;
    });
  };
  const numerator = sums(matches);
  const denominator = sums(ranked);
  const precision = numerator.map((value, k) => value / denominator[k]);
  const count = Math.max(1, isMatch.filter(Boolean).length);
  const ap = matches.reduce((sum, h, k) => sum + h * precision[k], 0) / count;
  // dAP/dh⁺_j and dAP/dh_j: a count in bin j is in the sums of bin j once and in those of all later bins twice.
  const byMatches = new Array(bins + 1);
  const byRanked = new Array(bins + 1);
  let laterMatches = 0;
  let laterRanked = 0;
  for (let j = bins; j >= 0; j--) {
    const ownMatches = matches[j] / denominator[j];
    const ownRanked = (matches[j] * numerator[j]) / denominator[j] ** 2;
    byMatches[j] = (precision[j] + ownMatches + 2 * laterMatches) / count;
    byRanked[j] = -(ownRanked + 2 * laterRanked) / count;
    laterMatches += ownMatches;
    laterRanked += ownRanked;
  }
  const gradient = lower.map((k, i) => {
    const slope = byRanked[k + 1] - byRanked[k] + (isMatch[i] ? byMatches[k + 1] - byMatches[k] : 0);
    return slope / width;
  });
  return { matches, ranked, precision, ap, gradient };
}

/** Return the exact, tie-aware AP: the mean over all orders of items at equal distance. */
function exactAveragePrecision(distances, isMatch) {
  const total = isMatch.filter(Boolean).length;
  if (!total) return 0;
  let before = 0;
  let matchesBefore = 0;
  let sum = 0;
  for (const distance of [...new Set(distances)].sort((a, b) => a - b)) {
    const tied = distances.map((d, i) => i).filter((i) => distances[i] === distance);
    const n = tied.length;
    const r = tied.filter((i) => isMatch[i]).length;
    // The k-th of n tied items is a match with probability r / n, after (k - 1)(r - 1) / (n - 1) others on average.
    for (let k = 1; k <= n; k++) {
      const others = n > 1 ? ((k - 1) * (r - 1)) / (n - 1) : 0;
      sum += ((r / n) * (matchesBefore + others + 1)) / (before + k);
    }
    before += n;
    matchesBefore += r;
  }
  return sum / total;
}

if (typeof module !== "undefined") module.exports = { relaxedAveragePrecision, exactAveragePrecision };
