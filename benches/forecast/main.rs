//! Measures the forecasts on public series: `make bench-forecast`. Prints how often an alert in advance is right and
//! how early it is, beside the reference of the method and two rules that need no profile. `docs/forecast.md` explains
//! the columns. `cargo bench --bench forecast -- hourly` measures the hourly pass.

mod evaluation;
mod hourly;
#[path = "../../tests/support/redis_server.rs"]
#[allow(dead_code, reason = "the tests use all of it")]
mod redis_server;
#[path = "../../tests/support/redis_server_client.rs"]
mod redis_server_client;
mod reference_figures;
#[allow(dead_code, reason = "the test names the series")]
mod series;

use evaluation::{Figures, Rule, evaluate};
use reference_figures::REFERENCE;

fn main() {
    if std::env::args().any(|argument| argument == "hourly") {
        return hourly::run();
    }
    println!(
        "{:<8} {:<15} {:>5}  Brier  precision  recall  2 h ahead  lead h  false in 30 days  time error h",
        "source", "rule", "cases"
    );
    for (source, reference) in &REFERENCE {
        let series = series::load(source);
        print(source, "the reference", Rule::Forecast, reference);
        for (rule, name) in
            [(Rule::Forecast, "forecast >= .9"), (Rule::Linear, "linear"), (Rule::Eighty, "alert at 80 %")]
        {
            let figures = evaluate(&series, rule);
            print(source, name, rule, &figures);
        }
    }
}

fn print(source: &str, name: &str, rule: Rule, figures: &Figures) {
    let Figures { cases, brier, precision, recall, recall_2h, lead_h, false_per_30d, time_error_h } = figures;
    let forecast_only = |figure: &f64| if rule == Rule::Forecast { format!("{figure:.3}") } else { String::new() };
    let (brier, time_error) = (forecast_only(brier), forecast_only(time_error_h));
    print!("{source:<8} {name:<15} {cases:>5}  {brier:>5}  {precision:>9.3}  {recall:>6.3}  {recall_2h:>9.3}  ");
    println!("{lead_h:>6.2}  {false_per_30d:>16.2}  {time_error:>12}");
}
