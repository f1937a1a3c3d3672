//! What the reference implementation of the method measures on the same series, at the same probability.

use quotabell::forecast::long::LongWindow;

use super::evaluation::Figures;
use super::long::LongFigures;

/// The reference's figures by source.
pub const REFERENCE: [(&str, Figures); 5] = [
    (
        "nab",
        Figures {
            cases: 1_068,
            brier: 0.099,
            precision: 0.924,
            recall: 0.866,
            recall_2h: 0.704,
            lead_h: 7.06,
            false_per_30d: 0.702,
            time_error_h: 0.87,
        },
    ),
    (
        "akl",
        Figures {
            cases: 5_289,
            brier: 0.071,
            precision: 0.956,
            recall: 0.959,
            recall_2h: 0.862,
            lead_h: 7.187,
            false_per_30d: 0.414,
            time_error_h: 0.682,
        },
    ),
    (
        "flights",
        Figures {
            cases: 4_794,
            brier: 0.088,
            precision: 0.913,
            recall: 0.78,
            recall_2h: 0.644,
            lead_h: 4.6,
            false_per_30d: 0.776,
            time_error_h: 0.214,
        },
    ),
    (
        "ipsc",
        Figures {
            cases: 489,
            brier: 0.118,
            precision: 0.957,
            recall: 0.333,
            recall_2h: 0.197,
            lead_h: 2.393,
            false_per_30d: 0.123,
            time_error_h: 1.292,
        },
    ),
    (
        "synth",
        Figures {
            cases: 4_869,
            brier: 0.084,
            precision: 0.945,
            recall: 0.836,
            recall_2h: 0.664,
            lead_h: 6.091,
            false_per_30d: 0.456,
            time_error_h: 0.974,
        },
    ),
];

/// The reference's figures of weeks and months, by source. It has none of sources with few months.
pub const LONG_REFERENCE: [(LongWindow, &str, LongFigures); 8] = [
    (LongWindow::Week, "nab", LongFigures { cases: 60, brier: 0.139, precision: 0.857, recall: 0.706, lead_h: 45.185 }),
    (
        LongWindow::Week,
        "akl",
        LongFigures { cases: 1_636, brier: 0.079, precision: 0.88, recall: 0.908, lead_h: 54.808 },
    ),
    (
        LongWindow::Week,
        "flights",
        LongFigures { cases: 893, brier: 0.097, precision: 0.955, recall: 0.759, lead_h: 46.75 },
    ),
    (LongWindow::Week, "ipsc", LongFigures { cases: 134, brier: 0.119, precision: 0.81, recall: 0.459, lead_h: 12.4 }),
    (
        LongWindow::Week,
        "synth",
        LongFigures { cases: 2_244, brier: 0.091, precision: 0.932, recall: 0.889, lead_h: 51.936 },
    ),
    (
        LongWindow::Month,
        "akl",
        LongFigures { cases: 378, brier: 0.08, precision: 0.926, recall: 0.852, lead_h: 252.073 },
    ),
    (
        LongWindow::Month,
        "flights",
        LongFigures { cases: 192, brier: 0.102, precision: 0.983, recall: 0.787, lead_h: 205.0 },
    ),
    (
        LongWindow::Month,
        "synth",
        LongFigures { cases: 456, brier: 0.105, precision: 0.837, recall: 0.955, lead_h: 375.024 },
    ),
];

/// The reference's days with twice the usual in 30 days, by source.
pub const SPIKES_PER_30D: [(&str, f64); 5] =
    [("nab", 0.555), ("akl", 0.085), ("flights", 0.0), ("ipsc", 0.259), ("synth", 0.741)];
