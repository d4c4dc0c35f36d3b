//! The gate: places, fairness between trees, rests and returns.

use std::collections::HashMap;

use super::*;

fn fair_queue(concurrency: usize, waiting_max: usize) -> Arc<FairQueue> {
    FairQueue::new("p", QueueLimits { concurrency, queued_max: waiting_max })
}

fn cool_down_max() -> CoolDownMax {
    CoolDownMax::Until(Instant::now() + Duration::from_secs(120))
}

/// Whether a future is not ready after everybody had their turn.
async fn is_pending<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = async { for _ in 0..10 { tokio::task::yield_now().await } } => true,
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_run_than_may_and_the_next_comes_when_one_goes() {
    let gate = fair_queue(2, 10);
    let first = gate.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
    let _second = gate.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
    let mut third = std::pin::pin!(gate.acquire(1, cool_down_max(), HasFallback::No));
    assert!(is_pending(third.as_mut()).await);
    drop(first);
    assert!(third.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_and_one_who_leaves_it_frees_a_place() {
    let gate = fair_queue(1, 2);
    let _running = gate.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
    let mut one = Box::pin(gate.acquire(2, cool_down_max(), HasFallback::No));
    let mut two = Box::pin(gate.acquire(3, cool_down_max(), HasFallback::No));
    assert!(is_pending(one.as_mut()).await && is_pending(two.as_mut()).await);
    let refused = gate.acquire(4, cool_down_max(), HasFallback::No).await.unwrap_err();
    assert!(matches!(refused.fault.kind, FaultKind::Busy { retry_after_ms } if retry_after_ms > 0));
    drop(one);
    let mut four = Box::pin(gate.acquire(4, cool_down_max(), HasFallback::No));
    assert!(is_pending(four.as_mut()).await, "there is room to wait again");
}

#[tokio::test(start_paused = true)]
async fn a_place_given_to_one_who_has_just_left_goes_to_the_next() {
    let gate = fair_queue(1, 10);
    let running = gate.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
    let mut one = Box::pin(gate.acquire(2, cool_down_max(), HasFallback::No));
    let mut two = Box::pin(gate.acquire(3, cool_down_max(), HasFallback::No));
    assert!(is_pending(one.as_mut()).await && is_pending(two.as_mut()).await);
    drop(running);
    drop(one);
    assert!(two.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_tree_that_floods_delays_the_others_by_no_more_than_one_round() {
    let gate = fair_queue(4, 10_000);
    let (telling, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = tokio::task::JoinSet::new();
    let mut ask = |root: Serial| {
        let (gate, telling) = (Arc::clone(&gate), telling.clone());
        tasks.spawn(async move {
            let place = gate.acquire(root, cool_down_max(), HasFallback::No).await.unwrap();
            telling.send(root).unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop(place);
        });
    };
    (0..1_000).for_each(|_| ask(1));
    (2..=51).for_each(&mut ask);
    drop(telling);
    let mut started = Vec::new();
    while let Some(root) = told.recv().await {
        started.push(root);
    }
    let last_quiet = started.iter().rposition(|root| *root != 1).unwrap();
    assert!(last_quiet < 120, "the last quiet one came in as number {last_quiet}");
    assert_eq!(started.len(), 1_050);
}

async fn fail_requests(gate: &Arc<FairQueue>, times: usize) {
    for _ in 0..times {
        let place = gate.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
        place.record_outcome(RequestOutcome::Unavailable(None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_down_rests_and_one_question_tries_it() {
    let gate = fair_queue(64, 10_000);
    fail_requests(&gate, 4).await;
    let began = Instant::now();
    drop(gate.acquire(1, cool_down_max(), HasFallback::No).await);
    assert_eq!(Instant::now(), began, "four failures are bad luck");
    fail_requests(&gate, 1).await;
    let probe = gate.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
    let rest = began.elapsed();
    assert!(rest >= Duration::from_millis(500) && rest <= Duration::from_millis(1_001), "{rest:?}");
    let mut other = Box::pin(gate.acquire(2, cool_down_max(), HasFallback::No));
    assert!(is_pending(other.as_mut()).await, "only one probe");
    probe.record_outcome(RequestOutcome::Unavailable(None));
    let began = Instant::now();
    drop(probe);
    let probe = other.await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(1_000), "the second rest is longer");
    probe.record_outcome(RequestOutcome::Available);
}

#[tokio::test(start_paused = true)]
async fn when_it_comes_back_there_is_no_stampede() {
    let gate = fair_queue(64, 10_000);
    fail_requests(&gate, 5).await;
    let mut tasks = tokio::task::JoinSet::new();
    let starts = Arc::new(Mutex::new(HashMap::<u128, usize>::new()));
    let began = Instant::now();
    for root in 0..1_000 {
        let (gate, starts) = (Arc::clone(&gate), Arc::clone(&starts));
        tasks.spawn(async move {
            let place = gate.acquire(root, cool_down_max(), HasFallback::No).await.unwrap();
            *starts.lock().unwrap().entry(began.elapsed().as_millis() / 50).or_default() += 1;
            // The answer begins after a tenth of a second and takes another.
            tokio::time::sleep(Duration::from_millis(100)).await;
            place.record_outcome(RequestOutcome::Available);
            tokio::time::sleep(Duration::from_millis(100)).await;
        });
    }
    while tasks.join_next().await.is_some() {}
    let starts = starts.lock().unwrap();
    let mut slots: Vec<_> = starts.iter().map(|(slot, count)| (*slot, *count)).collect();
    slots.sort_unstable();
    assert_eq!(slots[0].1, 1, "one goes first: {slots:?}");
    assert!(slots[1].1 <= 2, "{slots:?}");
    assert!(slots.iter().all(|(_, count)| *count <= 64), "{slots:?}");
    assert_eq!(slots.iter().map(|(_, count)| count).sum::<usize>(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_before_the_servers_own_time() {
    let gate = fair_queue(64, 10_000);
    for outcome in [RequestOutcome::RateLimited, RequestOutcome::Unavailable] {
        let began = Instant::now();
        gate.acquire(1, cool_down_max(), HasFallback::No)
            .await
            .unwrap()
            .record_outcome(outcome(Some(Duration::from_secs(30))));
        drop(gate.acquire(2, cool_down_max(), HasFallback::No).await.unwrap());
        let waited = began.elapsed();
        assert!(waited >= Duration::from_secs(30) && waited <= Duration::from_secs(31), "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn time_in_the_queue_is_not_held_against_a_question_that_was_never_asked() {
    let gate = fair_queue(1, 10);
    let rest_max = CoolDownMax::For(Duration::from_secs(120));
    let running = gate.acquire(1, rest_max, HasFallback::No).await.unwrap();
    let mut waiting = Box::pin(gate.acquire(2, rest_max, HasFallback::No));
    assert!(is_pending(waiting.as_mut()).await);
    tokio::time::advance(Duration::from_secs(300)).await;
    running.record_outcome(RequestOutcome::RateLimited(Some(Duration::from_secs(10))));
    drop(running);
    let began = Instant::now();
    assert!(waiting.await.is_ok());
    assert!(began.elapsed() >= Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_rest_beyond_the_deadline_is_told_at_once() {
    let gate = fair_queue(64, 10_000);
    let waiting = gate.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
    waiting.record_outcome(RequestOutcome::RateLimited(Some(Duration::from_secs(200))));
    let began = Instant::now();
    let refused = gate.acquire(2, cool_down_max(), HasFallback::No).await.unwrap_err();
    assert!(matches!(refused.fault.kind, FaultKind::Busy { retry_after_ms } if retry_after_ms >= 200_000));
    assert!(refused.fault.public.contains("asked again in"), "{}", refused.fault);
    assert_eq!(Instant::now(), began);
}

#[tokio::test(start_paused = true)]
async fn a_question_that_another_model_could_answer_does_not_wait_behind_a_probe() {
    let gate = fair_queue(64, 10_000);
    fail_requests(&gate, 5).await;
    let probe = gate.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
    let began = Instant::now();
    let in_hurry = CoolDownMax::Until(began + Duration::from_secs(2));
    let mut patient = Box::pin(gate.acquire(2, cool_down_max(), HasFallback::No));
    assert!(is_pending(patient.as_mut()).await);
    let refused = gate.acquire(3, in_hurry, HasFallback::Yes).await.unwrap_err();
    assert_eq!((refused.class, began.elapsed()), (ErrorClass::NotSent, Duration::from_secs(2)));
    probe.record_outcome(RequestOutcome::Available);
    drop(probe);
    assert!(patient.await.is_ok(), "with nobody else to ask it is worth waiting");
}
