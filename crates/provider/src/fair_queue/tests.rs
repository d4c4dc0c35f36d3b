//! Tests of the fair queue: permits, fairness between trees, cool-downs and recovery.

use std::collections::HashMap;

use super::*;

fn fair_queue(concurrency: usize, queued_max: usize) -> Arc<FairQueue> {
    FairQueue::new("p", QueueLimits { concurrency, queued_max })
}

fn cool_down_max() -> CoolDownMax {
    CoolDownMax::Until(Instant::now() + Duration::from_secs(120))
}

/// Whether a future is still pending after all other tasks have run.
async fn is_pending<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = async { for _ in 0..10 { tokio::task::yield_now().await } } => true,
    }
}

#[tokio::test(start_paused = true)]
async fn concurrency_is_bounded_and_a_release_admits_the_next() {
    let queue = fair_queue(2, 10);
    let first = queue.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
    let _second = queue.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
    let mut third = std::pin::pin!(queue.acquire(1, cool_down_max(), HasFallback::No));
    assert!(is_pending(third.as_mut()).await);
    drop(first);
    assert!(third.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn queue_is_bounded_and_a_dropped_future_frees_its_slot() {
    let queue = fair_queue(1, 2);
    let _running = queue.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
    let mut first = Box::pin(queue.acquire(2, cool_down_max(), HasFallback::No));
    let mut second = Box::pin(queue.acquire(3, cool_down_max(), HasFallback::No));
    assert!(is_pending(first.as_mut()).await && is_pending(second.as_mut()).await);
    let error = queue.acquire(4, cool_down_max(), HasFallback::No).await.unwrap_err();
    assert!(matches!(error.fault.kind, FaultKind::Busy { retry_after_ms } if retry_after_ms > 0));
    drop(first);
    let mut fourth = Box::pin(queue.acquire(4, cool_down_max(), HasFallback::No));
    assert!(is_pending(fourth.as_mut()).await, "the slot is free again");
}

#[tokio::test(start_paused = true)]
async fn permit_of_a_dropped_request_goes_to_the_next() {
    let queue = fair_queue(1, 10);
    let running = queue.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
    let mut first = Box::pin(queue.acquire(2, cool_down_max(), HasFallback::No));
    let mut second = Box::pin(queue.acquire(3, cool_down_max(), HasFallback::No));
    assert!(is_pending(first.as_mut()).await && is_pending(second.as_mut()).await);
    drop(running);
    drop(first);
    assert!(second.await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn flooding_tree_delays_other_trees_by_at_most_one_round() {
    let queue = fair_queue(4, 10_000);
    let (started_sender, mut started_receiver) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = tokio::task::JoinSet::new();
    let mut spawn_request = |root: Serial| {
        let (queue, started_sender) = (Arc::clone(&queue), started_sender.clone());
        tasks.spawn(async move {
            let permit = queue.acquire(root, cool_down_max(), HasFallback::No).await.unwrap();
            started_sender.send(root).unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop(permit);
        });
    };
    (0..1_000).for_each(|_| spawn_request(1));
    (2..=51).for_each(&mut spawn_request);
    drop(started_sender);
    let mut started = Vec::new();
    while let Some(root) = started_receiver.recv().await {
        started.push(root);
    }
    let last_quiet = started.iter().rposition(|root| *root != 1).unwrap();
    assert!(last_quiet < 120, "the last other tree was admitted as number {last_quiet}");
    assert_eq!(started.len(), 1_050);
}

async fn fail_requests(queue: &Arc<FairQueue>, times: usize) {
    for _ in 0..times {
        let permit = queue.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
        permit.record_outcome(RequestOutcome::Unavailable(None));
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_failures_open_the_circuit_for_one_probe() {
    let queue = fair_queue(64, 10_000);
    fail_requests(&queue, 4).await;
    let began = Instant::now();
    drop(queue.acquire(1, cool_down_max(), HasFallback::No).await);
    assert_eq!(Instant::now(), began, "four failures do not open the circuit");
    fail_requests(&queue, 1).await;
    let probe = queue.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
    let cool_down = began.elapsed();
    assert!(
        cool_down >= Duration::from_millis(500) && cool_down <= Duration::from_millis(1_001),
        "{cool_down:?}"
    );
    let mut other = Box::pin(queue.acquire(2, cool_down_max(), HasFallback::No));
    assert!(is_pending(other.as_mut()).await, "only one probe");
    probe.record_outcome(RequestOutcome::Unavailable(None));
    let began = Instant::now();
    drop(probe);
    let probe = other.await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(1_000), "the second cool-down is longer");
    probe.record_outcome(RequestOutcome::Available);
}

#[tokio::test(start_paused = true)]
async fn recovery_ramps_up_without_a_thundering_herd() {
    let queue = fair_queue(64, 10_000);
    fail_requests(&queue, 5).await;
    let mut tasks = tokio::task::JoinSet::new();
    let starts = Arc::new(Mutex::new(HashMap::<u128, usize>::new()));
    let began = Instant::now();
    for root in 0..1_000 {
        let (queue, starts) = (Arc::clone(&queue), Arc::clone(&starts));
        tasks.spawn(async move {
            let permit = queue.acquire(root, cool_down_max(), HasFallback::No).await.unwrap();
            *starts.lock().unwrap().entry(began.elapsed().as_millis() / 50).or_default() += 1;
            // The response begins after 100 ms and takes another 100 ms.
            tokio::time::sleep(Duration::from_millis(100)).await;
            permit.record_outcome(RequestOutcome::Available);
            tokio::time::sleep(Duration::from_millis(100)).await;
        });
    }
    while tasks.join_next().await.is_some() {}
    let starts = starts.lock().unwrap();
    let mut slots: Vec<_> = starts.iter().map(|(slot, count)| (*slot, *count)).collect();
    slots.sort_unstable();
    assert_eq!(slots[0].1, 1, "one probe goes first: {slots:?}");
    assert!(slots[1].1 <= 2, "{slots:?}");
    assert!(slots.iter().all(|(_, count)| *count <= 64), "{slots:?}");
    assert_eq!(slots.iter().map(|(_, count)| count).sum::<usize>(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn no_request_is_sent_before_retry_after() {
    let queue = fair_queue(64, 10_000);
    for outcome in [RequestOutcome::RateLimited, RequestOutcome::Unavailable] {
        let began = Instant::now();
        queue
            .acquire(1, cool_down_max(), HasFallback::No)
            .await
            .unwrap()
            .record_outcome(outcome(Some(Duration::from_secs(30))));
        drop(queue.acquire(2, cool_down_max(), HasFallback::No).await.unwrap());
        let waited = began.elapsed();
        assert!(waited >= Duration::from_secs(30) && waited <= Duration::from_secs(31), "{waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn queue_time_does_not_count_against_the_cool_down_limit() {
    let queue = fair_queue(1, 10);
    let limit = CoolDownMax::For(Duration::from_secs(120));
    let running = queue.acquire(1, limit, HasFallback::No).await.unwrap();
    let mut waiting = Box::pin(queue.acquire(2, limit, HasFallback::No));
    assert!(is_pending(waiting.as_mut()).await);
    tokio::time::advance(Duration::from_secs(300)).await;
    running.record_outcome(RequestOutcome::RateLimited(Some(Duration::from_secs(10))));
    drop(running);
    let began = Instant::now();
    assert!(waiting.await.is_ok());
    assert!(began.elapsed() >= Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn cool_down_beyond_the_deadline_fails_at_once() {
    let queue = fair_queue(64, 10_000);
    let waiting = queue.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
    waiting.record_outcome(RequestOutcome::RateLimited(Some(Duration::from_secs(200))));
    let began = Instant::now();
    let error = queue.acquire(2, cool_down_max(), HasFallback::No).await.unwrap_err();
    assert!(matches!(error.fault.kind, FaultKind::Busy { retry_after_ms } if retry_after_ms >= 200_000));
    assert!(error.fault.public.contains("next attempt in"), "{}", error.fault);
    assert_eq!(Instant::now(), began);
}

#[tokio::test(start_paused = true)]
async fn request_with_fallback_does_not_wait_behind_a_probe() {
    let queue = fair_queue(64, 10_000);
    fail_requests(&queue, 5).await;
    let probe = queue.acquire(1, cool_down_max(), HasFallback::No).await.unwrap();
    let began = Instant::now();
    let deadline = CoolDownMax::Until(began + Duration::from_secs(2));
    let mut without_fallback = Box::pin(queue.acquire(2, cool_down_max(), HasFallback::No));
    assert!(is_pending(without_fallback.as_mut()).await);
    let error = queue.acquire(3, deadline, HasFallback::Yes).await.unwrap_err();
    assert_eq!((error.class, began.elapsed()), (ErrorClass::NotSent, Duration::from_secs(2)));
    probe.record_outcome(RequestOutcome::Available);
    drop(probe);
    assert!(without_fallback.await.is_ok(), "without a fallback the request keeps waiting");
}
